/* Every form of the checksum gives XXH3's number, at any length and address. */
#include <stdio.h>
#include <stdlib.h>

#include "mocka.h"
#include "base/checksum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { BYTES = 300000 };

static uint8_t *random_bytes(void)
{
    uint8_t *bytes = malloc(BYTES);
    uint64_t state = 1;
    assert_non_null(bytes);
    for (size_t i = 0; i < BYTES; i++) {
        state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
        bytes[i] = (uint8_t)(state >> 56);
    }
    return bytes;
}

static void agrees(kvpi_checksum_fn form)
{
    uint8_t *bytes = random_bytes();
    for (size_t at = 0; at < 3; at++) {
        for (size_t n = 0; n < 2200; n++)
            assert_true(form(bytes + at, n) == XXH3_64bits(bytes + at, n));
        for (size_t n = BYTES - 70; n < BYTES; n++)
            assert_true(form(bytes + at, n - at) == XXH3_64bits(bytes + at, n - at));
    }
    free(bytes);
}

TEST(as_it_is_used)
{
    agrees(kvpi_checksum);
}

TEST(the_best_form)
{
    if (!kvpi_checksum_wide()) {
        puts("skipped: this processor has no form of its own");
        skip();
    }
    agrees(kvpi_checksum_wide());
}

/* Where there is AVX-512 this one would never run. */
TEST(avx2)
{
    if (!kvpi_checksum_avx2() || !kvpi_checksum_wide()) {
        puts("skipped: no AVX2");
        skip();
    }
    agrees(kvpi_checksum_avx2());
}

TEST_MAIN(NULL, NULL)
