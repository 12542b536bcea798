/* test_id.c - names that cannot be guessed. */
#include "base/id.h"

#include "base/util.h"
#include "test.h"

TEST(an_id_has_its_length_its_alphabet_and_a_nul)
{
    char id[202];

    for (size_t n = 0; n <= 200; n += 25) {
        memset(id, '#', sizeof(id));
        id_random(id, n);
        CHECK_INT(strlen(id), n);
        CHECK_INT(strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789"), n);
        CHECK_INT(id[n + 1], '#');
    }
}

TEST(no_two_ids_are_alike)
{
    static char id[2000][21];

    for (size_t i = 0; i < ARRAY_LEN(id); i++)
        id_random(id[i], 20);
    for (size_t i = 0; i < ARRAY_LEN(id); i++)
        for (size_t k = i + 1; k < ARRAY_LEN(id); k++)
            CHECK(memcmp(id[i], id[k], 21) != 0);
}

TEST(every_letter_is_about_as_likely)
{
    static char id[36001];
    int count[256] = { 0 };

    id_random(id, sizeof(id) - 1);
    for (size_t i = 0; i < sizeof(id) - 1; i++)
        count[(unsigned char)id[i]]++;
    for (int c = 'a'; c <= 'z'; c++) /* 1000 expected, sigma 31: 300 is ten of them */
        CHECK(count[c] > 700 && count[c] < 1300);
    for (int c = '0'; c <= '9'; c++)
        CHECK(count[c] > 700 && count[c] < 1300);
}
