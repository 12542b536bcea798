/* test_jwt.c - tokens of our logins, against one that PyJWT 2.15.1 made. */
#include "io/jwt.h"
#include "test.h"

static const struct str key = STR("a key of thirty-two bytes or more");

/* jwt.encode({"session_uuid": "5a0c...", "exp": 4102444800, "sub": "7"}, key, "HS256") */
static const char theirs[] =
    "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzZXNzaW9uX3V1aWQiOiI1YTBjMmMxZ"
    "S03YTQzLTRjN2EtOWIwZS0wZDJmNWI5ZjFhMTEiLCJleHAiOjQxMDI0NDQ4MDAsInN1YiI"
    "6IjcifQ.0Az7YtIevjAqOZlBxJS2pKJVJeU3ySKqk2UJ1jUt8qc";

static const struct jwt login = { .session = "5a0c2c1e-7a43-4c7a-9b0e-0d2f5b9f1a11",
                                  .user = 7,
                                  .expires_s = 4102444800 };

static void refused(struct str with, const char *token, const char *sentence)
{
    struct err err = { 0 };
    struct jwt t;

    CHECK_INT(jwt_verify(with, str_of(token), 1000, &t, &err), -1);
    CHECK_INT(err.code, ERR_UNAUTHENTICATED);
    CHECK_STR(err.msg, sentence);
}

TEST(a_token_of_pyjwt_is_understood)
{
    struct err err = { 0 };
    struct jwt t = { 0 };

    CHECK_INT(jwt_verify(key, str_of(theirs), 1000, &t, &err), 0);
    CHECK_STR(t.session, login.session);
    CHECK_INT(t.user, 7);
    CHECK_INT(t.expires_s, login.expires_s);
}

TEST(the_same_login_is_signed_to_the_same_bytes_as_by_pyjwt)
{
    AUTO(buf_free) struct buf b = { 0 };
    struct err err = { 0 };

    CHECK_INT(jwt_sign(key, &login, &b, &err), 0);
    CHECK_STR(buf_cstr(&b), theirs);
}

TEST(a_token_expires_in_the_second_that_it_names)
{
    struct err err = { 0 };
    struct jwt t;

    CHECK_INT(jwt_verify(key, str_of(theirs), 4102444799, &t, &err), 0);
    CHECK_INT(jwt_verify(key, str_of(theirs), 4102444800, &t, &err), -1);
    CHECK_STR(err.msg, JWT_EXPIRED);
}

TEST(another_key_or_one_changed_byte_is_refused)
{
    char copy[sizeof(theirs)];

    refused(STR("another key"), theirs, JWT_INVALID);
    for (size_t i = 0; i < sizeof(theirs) - 1; i++) {
        memcpy(copy, theirs, sizeof(theirs));
        copy[i] = copy[i] == 'A' ? 'B' : 'A';
        refused(key, copy, JWT_INVALID);
        memcpy(copy, theirs, sizeof(theirs));
        copy[i] = 0; /* cut short */
        refused(key, copy, JWT_INVALID);
    }
}

TEST(no_algorithm_and_another_algorithm_are_refused)
{
    /* {"alg":"none","typ":"JWT"} with an empty signature, and with one made by our key */
    refused(key, "eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0.eyJzdWIiOiI3IiwiZXhwIjo0MTAyNDQ0ODAwfQ.",
            JWT_INVALID);
    refused(key,
            "eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0.eyJzZXNzaW9uX3V1aWQiOiI1YTBjMmMxZS"
            "03YTQzLTRjN2EtOWIwZS0wZDJmNWI5ZjFhMTEiLCJleHAiOjQxMDI0NDQ4MDAsInN1YiI6"
            "IjcifQ.yz1uzNSXJunAQRDLchTIRBVSa6iOFIElV5ARC_lvzsc",
            JWT_INVALID);
    refused(key,
            "eyJhbGciOiJIUzM4NCIsInR5cCI6IkpXVCJ9.eyJzZXNzaW9uX3V1aWQiOiI1YTBjMmMxZ"
            "S03YTQzLTRjN2EtOWIwZS0wZDJmNWI5ZjFhMTEiLCJleHAiOjQxMDI0NDQ4MDAsInN1YiI"
            "6IjcifQ.gv1QsM2Th6rArbHZ4zegD18KOhUzkgK7xJqQLMFwvcL0tlGSzkVDqrQ8yQagnv"
            "zK",
            JWT_INVALID);
}

TEST(a_signed_token_that_says_too_little_is_refused)
{
    refused(key,
            "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzZXNzaW9uX3V1aWQiOiI1YTBjMmMxZ"
            "S03YTQzLTRjN2EtOWIwZS0wZDJmNWI5ZjFhMTEiLCJleHAiOjQxMDI0NDQ4MDB9.mcF2vZ"
            "UclptYSv81A5tWLLOaH5pXidnNX_tOoaEC0a0",
            JWT_INVALID);
    refused(key,
            "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzZXNzaW9uX3V1aWQiOiI1YTBjMmMxZ"
            "S03YTQzLTRjN2EtOWIwZS0wZDJmNWI5ZjFhMTEiLCJleHAiOjQxMDI0NDQ4MDAsInN1YiI"
            "6N30._Cau97PUC15UI0iJnHyaiLX3PV7_93AGjNakGiMn5iw",
            JWT_INVALID);
    refused(key,
            "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzZXNzaW9uX3V1aWQiOiI1YTBjMmMxZ"
            "S03YTQzLTRjN2EtOWIwZS0wZDJmNWI5ZjFhMTEiLCJzdWIiOiI3In0.1eNtSe3Isf7_8v_"
            "t7f0YeHoRrYq7aBdC82QktxbKWiY",
            JWT_INVALID);
    refused(key,
            "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJleHAiOjQxMDI0NDQ4MDAsInN1YiI6I"
            "jcifQ.qWHLX70Wx5z75oII0m2hjovVG-E7ng0d7onvg6zBHSw",
            JWT_INVALID);
    refused(key,
            "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.W3sic2Vzc2lvbl91dWlkIjoiNWEwYzJjM"
            "WUtN2E0My00YzdhLTliMGUtMGQyZjViOWYxYTExIiwiZXhwIjo0MTAyNDQ0ODAwLCJzdWI"
            "iOiI3In1d.GqDeqJy6GN7jvo5J4RwP6qwepE74SST_f99yKhkRPoc",
            JWT_INVALID);
}

TEST(what_is_no_token_at_all_is_refused)
{
    AUTO(buf_free) struct buf big = { 0 };

    refused(key, "", JWT_INVALID);
    refused(key, "..", JWT_INVALID);
    refused(key, "a.b", JWT_INVALID);
    refused(key, "a.b.c.d", JWT_INVALID);
    for (int i = 0; i < 1 << 18; i++)
        buf_puts(&big, "a.b.");
    refused(key, big.data, JWT_INVALID);
}
