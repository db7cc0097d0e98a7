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

typedef uint64_t (*whole_fn)(const uint8_t *bytes, size_t n_bytes);
typedef void (*add_fn)(struct kvpi_checksum_state *state, const uint8_t *bytes, size_t n_bytes);

/* In pieces of `piece` bytes, the last one shorter. */
static uint64_t in_pieces(add_fn add, const uint8_t *bytes, size_t n_bytes, size_t piece)
{
    struct kvpi_checksum_state state;
    kvpi_checksum_begin(&state);
    for (size_t at = 0; at < n_bytes; at += piece)
        add(&state, bytes + at, n_bytes - at < piece ? n_bytes - at : piece);
    return kvpi_checksum_end(&state);
}

static void agrees(whole_fn whole, add_fn add)
{
    static const size_t pieces[] = {1, 32, 255, 4096, BYTES};
    uint8_t *bytes = random_bytes();
    for (size_t at = 0; at < 3; at++) {
        for (size_t n = 0; n < 2200; n++)
            assert_true(whole(bytes + at, n) == XXH3_64bits(bytes + at, n));
        for (size_t n = BYTES - 70; n < BYTES; n++)
            assert_true(whole(bytes + at, n - at) == XXH3_64bits(bytes + at, n - at));
        for (size_t p = 0; p < sizeof pieces / sizeof *pieces; p++) {
            for (size_t n = 0; n < 9000; n += n < 300 ? 1 : 97)
                assert_true(in_pieces(add, bytes + at, n, pieces[p]) == XXH3_64bits(bytes + at, n));
            assert_true(in_pieces(add, bytes + at, BYTES - at, pieces[p]) ==
                        XXH3_64bits(bytes + at, BYTES - at));
        }
    }
    free(bytes);
}

TEST(as_it_is_used)
{
    agrees(kvpi_checksum, kvpi_checksum_add);
}

TEST(the_best_form)
{
    if (!kvpi_checksum_wide()) {
        puts("skipped: this processor has no form of its own");
        skip();
    }
    agrees(kvpi_checksum_wide()->whole, kvpi_checksum_wide()->add);
}

/* Where there is AVX-512 this one would never run. */
TEST(avx2)
{
    if (!kvpi_checksum_avx2() || !kvpi_checksum_wide()) {
        puts("skipped: no AVX2");
        skip();
    }
    agrees(kvpi_checksum_avx2()->whole, kvpi_checksum_avx2()->add);
}

TEST_MAIN(NULL, NULL)
