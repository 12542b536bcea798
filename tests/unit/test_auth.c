/* test_auth.c - signatures of file URLs and the user named by Basic. */
#include "guest/auth.h"
#include "model/signature.h"
#include "test.h"

static int check(const char *sig, const char *path, const char *op, const char *user,
                 const char *expiry, int64_t now, struct err *err)
{
    return signature_check(str_of(sig), str_of(path), op, str_of(user), STR("tok123"),
                           str_of(expiry), now, err);
}

TEST(the_signature_is_the_one_that_both_sdks_make)
{
    AUTO(buf_free) struct buf b = { 0 };

    signature_make(&b, STR("a.txt"), "read", STR(""), STR("tok123"), (struct str){ 0 });
    CHECK_STR(buf_cstr(&b), "v1_bpTAo3zQPfgZ/Q18/PKbUXC4njwhHadZON8x0Kv4xhc");
}

TEST(a_signature_holds_only_for_what_was_signed)
{
    const char *sig = "v1_bpTAo3zQPfgZ/Q18/PKbUXC4njwhHadZON8x0Kv4xhc";
    struct err err = { 0 };

    CHECK_INT(check(sig, "a.txt", "read", "", NULL, 0, &err), 0);
    CHECK_INT(check(sig, "b.txt", "read", "", NULL, 0, &err), -1);
    CHECK_INT(err.code, ERR_UNAUTHENTICATED);
    CHECK_INT(check(sig, "a.txt", "write", "", NULL, 0, &err), -1);
    CHECK_INT(check(sig, "a.txt", "read", "root", NULL, 0, &err), -1);
    CHECK_INT(check(sig, "a.txt", "read", "", "99999999999", 0, &err), -1);
    CHECK_INT(check("", "a.txt", "read", "", NULL, 0, &err), -1);
    CHECK_INT(check("v1_", "a.txt", "read", "", NULL, 0, &err), -1);
}

TEST(a_signature_expires)
{
    AUTO(buf_free) struct buf b = { 0 };
    struct err err = { 0 };

    signature_make(&b, STR("a"), "write", STR("user"), STR("tok123"), STR("1000"));
    CHECK_INT(check(buf_cstr(&b), "a", "write", "user", "1000", 1000, &err), 0);
    CHECK_INT(check(buf_cstr(&b), "a", "write", "user", "1000", 1001, &err), -1);
    CHECK_STR(err.msg, "the signature has expired");
}

TEST(basic_names_the_user_and_ignores_the_password)
{
    struct arena a = { 0 };
    struct err err = { 0 };
    char *name;

    CHECK_INT(auth_basic_user(STR("Basic dXNlcjo="), &a, &name, &err), 0);
    CHECK_STR(name, "user");
    CHECK_INT(auth_basic_user(STR("basic cm9vdDpzZWNyZXQ="), &a, &name, &err), 0);
    CHECK_STR(name, "root");
    CHECK_INT(auth_basic_user(STR("Bearer abc"), &a, &name, &err), 0);
    CHECK_STR(name, "");
    CHECK_INT(auth_basic_user((struct str){ 0 }, &a, &name, &err), 0);
    CHECK_STR(name, "");
    CHECK_INT(auth_basic_user(STR("Basic ***"), &a, &name, &err), -1);
    CHECK_INT(err.code, ERR_UNAUTHENTICATED);
    arena_free(&a);
}
