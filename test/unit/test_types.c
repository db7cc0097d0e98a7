/* The dictionary: names, texts and classes of the statuses, which are frozen. */
#include <limits.h>
#include <string.h>

#include "mocka.h"

#include <kvpager/types.h>

/* Written out once more: a number that changes must change here too. */
static const struct {
    int number;
    const char *name;
    int class_;
} statuses[] = {
    {0, "KVP_OK", KVP_CLASS_OK},
    {-1, "KVP_E_ARG", KVP_CLASS_CALLER},
    {-2, "KVP_E_HANDLE", KVP_CLASS_CALLER},
    {-3, "KVP_E_STATE", KVP_CLASS_CALLER},
    {-4, "KVP_E_TOO_LONG", KVP_CLASS_CALLER},
    {-5, "KVP_E_TOO_SMALL", KVP_CLASS_CALLER},
    {-6, "KVP_E_NEVER", KVP_CLASS_CALLER},
    {-7, "KVP_E_NO_BLOCKS", KVP_CLASS_RETRY},
    {-8, "KVP_E_NO_SEQS", KVP_CLASS_RETRY},
    {-9, "KVP_E_NO_NAMESPACES", KVP_CLASS_RETRY},
    {-10, "KVP_E_PLAN_FULL", KVP_CLASS_RETRY},
    {-11, "KVP_E_UNKNOWN", KVP_CLASS_DATA},
    {-12, "KVP_E_FORMAT", KVP_CLASS_DATA},
    {-13, "KVP_E_VERSION", KVP_CLASS_DATA},
    {-14, "KVP_E_MISMATCH", KVP_CLASS_DATA},
    {-15, "KVP_E_NO_MEMORY", KVP_CLASS_SYSTEM},
    {-16, "KVP_E_IO", KVP_CLASS_SYSTEM},
    {-17, "KVP_E_BUSY", KVP_CLASS_CALLER},
    {-18, "KVP_E_CORRUPT", KVP_CLASS_SYSTEM},
    {-19, "KVP_E_NO_STEPS", KVP_CLASS_RETRY},
    {-20, "KVP_E_IN_FLIGHT", KVP_CLASS_RETRY},
    {-21, "KVP_E_BEHIND", KVP_CLASS_DATA},
    {-22, "KVP_E_DROPPED", KVP_CLASS_DATA},
    {-30, "KVP_E_AGAIN", KVP_CLASS_RETRY},
    {-31, "KVP_E_PEER", KVP_CLASS_SYSTEM},
};

enum { N = sizeof(statuses) / sizeof(*statuses) };

TEST(test_every_status_has_its_name_and_class)
{
    for (size_t i = 0; i < N; i++) {
        const kvp_status status = (kvp_status)statuses[i].number;
        assert_string_equal(kvp_status_name(status), statuses[i].name);
        assert_int_equal(kvp_status_class(status), statuses[i].class_);
    }
}

TEST(test_every_status_has_a_text_of_its_own)
{
    for (size_t i = 0; i < N; i++) {
        const char *text = kvp_status_text((kvp_status)statuses[i].number);
        assert_true(strlen(text) > 5);
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(text, kvp_status_text((kvp_status)statuses[k].number));
    }
}

TEST(test_the_table_has_no_other_status)
{
    int n = 0;
#define COUNT(name, number, class_, text) n += 1;
    KVP_STATUS_TABLE(COUNT)
#undef COUNT
    assert_int_equal(n, N);
}

TEST(test_a_number_that_is_no_status_is_a_fault_of_the_system)
{
    const int numbers[] = {1, -99, 1000, INT_MAX, INT_MIN};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
        const kvp_status status = (kvp_status)numbers[i];
        assert_string_equal(kvp_status_name(status), "KVP_E_?");
        assert_true(strlen(kvp_status_text(status)) > 5);
        assert_int_equal(kvp_status_class(status), KVP_CLASS_SYSTEM);
    }
}

TEST(test_the_version_is_the_headers)
{
    assert_string_equal(kvp_version(), KVP_VERSION);
    assert_int_equal(kvp_version()[0] - '0', KVP_VERSION_MAJOR);
    assert_int_equal(kvp_version()[2] - '0', KVP_VERSION_MINOR);
    assert_int_equal(kvp_version()[4] - '0', KVP_VERSION_PATCH);
}

TEST_MAIN(NULL, NULL)
