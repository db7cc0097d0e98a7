/* A kvpager that was built without zlib and libzstd: it reads what is not packed, and refuses what
 * is by the library's name. unpack.c is compiled into this program without them.
 */
#include "mocka.h"
#include <stdio.h>
#include <string.h>

#include "tool/input/unpack.h"

static const char *read_all(const char *bytes, size_t n, char *out, size_t *out_n)
{
    kvpi_budget budget = {0};
    FILE *file = tmpfile();
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    rewind(file);
    kvpi_unpack unpack = {.file = file, .budget = &budget};
    *out_n = kvpi_unpack_read(&unpack, out, 64);
    const char *wrong = unpack.wrong;
    kvpi_unpack_close(&unpack);
    fclose(file);
    assert_int_equal(budget.used, 0);
    return wrong;
}

TEST(test_plain)
{
    char out[64];
    size_t n = 0;
    for (size_t length = 0; length < 40; length++) {
        static const char text[] = "what is not packed is read as it stands";
        assert_null(read_all(text, length, out, &n));
        assert_int_equal(n, length);
        assert_memory_equal(out, text, length);
    }
}

TEST(test_refused)
{
    char out[64];
    size_t n = 1;
    assert_string_equal(read_all("\x1f\x8b\x08", 3, out, &n),
                        "is packed by gzip, and this kvpager was built without zlib");
    assert_int_equal(n, 0);
    assert_string_equal(read_all("\x28\xb5\x2f\xfd", 4, out, &n),
                        "is packed by zstd, and this kvpager was built without libzstd");
    assert_int_equal(n, 0);
}

TEST_MAIN(NULL, NULL)
