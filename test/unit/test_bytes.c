/* Numbers in the formats: little-endian, and varints in one form each. */
#include "mocka.h"
#include "base/bytes.h"

TEST(fixed_numbers_are_little_endian)
{
    uint8_t at[8] = {0};
    (void)state;
    kvpi_bytes_store(at, UINT64_C(0x8877665544332211), 8);
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(at[i], 0x11 * (i + 1));
    assert_true(kvpi_bytes_load(at, 8) == UINT64_C(0x8877665544332211));
    assert_true(kvpi_bytes_load(at, 3) == 0x332211);
    assert_true(kvpi_bytes_load32(at + 1) == 0x55443322);
    kvpi_bytes_store(at, UINT64_MAX, 1);
    assert_int_equal(at[0], 0xff);
    assert_int_equal(at[1], 0x22);
}

/* Every power of two and its neighbours, with every length of the buffer. */
TEST(varints_come_back)
{
    for (unsigned bit = 0; bit < 64; bit++) {
        for (unsigned near = 0; near < 3; near++) {
            const uint64_t value = (UINT64_C(1) << bit) + near - 1;
            uint8_t bytes[KVPI_VARINT_BYTES];
            const unsigned n = kvpi_varint_store(bytes, value);
            uint64_t out = 0;
            const uint8_t *at = bytes;
            assert_true(n <= KVPI_VARINT_BYTES && (n == 1 || value >> (7 * (n - 1)) > 0));
            assert_true(kvpi_varint_load(&at, bytes + n, UINT64_MAX, &out));
            assert_true(at == bytes + n && out == value);
            for (unsigned short_by = 1; short_by <= n; short_by++) {
                at = bytes;
                assert_false(kvpi_varint_load(&at, bytes + n - short_by, UINT64_MAX, &out));
                assert_ptr_equal(at, bytes);
            }
        }
    }
}

TEST(larger_than_the_field)
{
    uint8_t bytes[KVPI_VARINT_BYTES];
    const uint8_t *at = bytes;
    uint64_t out = 0;
    (void)state;
    const unsigned n = kvpi_varint_store(bytes, 300);
    assert_false(kvpi_varint_load(&at, bytes + n, 299, &out));
    assert_ptr_equal(at, bytes);
    assert_true(kvpi_varint_load(&at, bytes + n, 300, &out));
    assert_true(out == 300 && at == bytes + n);
}

static void refuse(const uint8_t *bytes, size_t n)
{
    const uint8_t *at = bytes;
    uint64_t out = 0;
    assert_false(kvpi_varint_load(&at, bytes + n, UINT64_MAX, &out));
    assert_ptr_equal(at, bytes);
}

TEST(one_value_has_one_form)
{
    static const uint8_t zero_in_two[] = {0x80, 0x00};
    static const uint8_t one_in_three[] = {0x81, 0x80, 0x00};
    static const uint8_t bit_64[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02};
    static const uint8_t eleven[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
                                     0xff, 0xff, 0xff, 0x81, 0x01};
    (void)state;
    refuse(zero_in_two, sizeof(zero_in_two));
    refuse(one_in_three, sizeof(one_in_three));
    refuse(bit_64, sizeof(bit_64));
    refuse(eleven, sizeof(eleven));
}

TEST_MAIN(NULL, NULL)
