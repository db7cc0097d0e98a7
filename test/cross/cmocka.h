/* cmocka: as much of the library of this name as the unit tests use, for targets that do not have
 * it (KVP_BUILD_UNITS). The first failed assertion ends its test; the other tests run.
 */
#ifndef TEST_CMOCKA_H
#define TEST_CMOCKA_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

typedef int (*CMFixtureFunction)(void **state);

struct CMUnitTest {
    const char *name;
    void (*test)(void **state);
    CMFixtureFunction setup; /* or NULL, as the next one */
    CMFixtureFunction teardown;
};

#define cmocka_unit_test_setup_teardown(f, setup, teardown)                                        \
    {                                                                                              \
#f, f, setup, teardown                                                                     \
    }

/* How many failed: the program's status. A test without a name ends the list. */
#define cmocka_run_group_tests(tests, begin, end)                                                  \
    cross_run(tests, sizeof(tests) / sizeof((tests)[0]), begin, end)

int cross_run(const struct CMUnitTest *tests, size_t n, CMFixtureFunction begin,
              CMFixtureFunction end);

/* All of them leave the test when they fail. Numbers are compared with 64 bits, sign extended. */
void cross_true(int is_true, const char *text, const char *file, int line);
void cross_equal(uint64_t a, uint64_t b, int wanted, const char *text, const char *file, int line);
void cross_in_range(uint64_t value, uint64_t least, uint64_t most, const char *file, int line);
void cross_memory(const void *a, const void *b, size_t n, int wanted, const char *file, int line);
void cross_string(const char *a, const char *b, int wanted, const char *file, int line);
__attribute__((noreturn)) void cross_leave(const char *why, const char *file, int line);
__attribute__((noreturn)) void cross_skip(void);
void print_error(const char *format, ...);
void print_message(const char *format, ...);

#define assert_true(c)     cross_true((c) != 0, #c, __FILE__, __LINE__)
#define assert_false(c)    cross_true((c) == 0, "not " #c, __FILE__, __LINE__)
#define assert_non_null(p) cross_true((p) != NULL, #p, __FILE__, __LINE__)
#define assert_null(p)     cross_true((p) == NULL, #p " is NULL", __FILE__, __LINE__)
#define assert_int_equal(a, b)                                                                     \
    cross_equal((uint64_t)(a), (uint64_t)(b), 1, #a " == " #b, __FILE__, __LINE__)
#define assert_int_not_equal(a, b)                                                                 \
    cross_equal((uint64_t)(a), (uint64_t)(b), 0, #a " != " #b, __FILE__, __LINE__)
#define assert_ptr_equal(a, b)                                                                     \
    cross_true((const void *)(a) == (const void *)(b), #a " == " #b, __FILE__, __LINE__)
#define assert_ptr_not_equal(a, b)                                                                 \
    cross_true((const void *)(a) != (const void *)(b), #a " != " #b, __FILE__, __LINE__)
#define assert_in_range(value, least, most)                                                        \
    cross_in_range((uint64_t)(value), (uint64_t)(least), (uint64_t)(most), __FILE__, __LINE__)
#define assert_memory_equal(a, b, n)     cross_memory(a, b, n, 1, __FILE__, __LINE__)
#define assert_memory_not_equal(a, b, n) cross_memory(a, b, n, 0, __FILE__, __LINE__)
#define assert_string_equal(a, b)        cross_string(a, b, 1, __FILE__, __LINE__)
#define assert_string_not_equal(a, b)    cross_string(a, b, 0, __FILE__, __LINE__)
#define _fail(file, line)                cross_leave("failed", file, line)
#define fail()                           cross_leave("failed", __FILE__, __LINE__)
#define skip()                           cross_skip()
#define fail_msg(...)                                                                              \
    do {                                                                                           \
        print_error(__VA_ARGS__);                                                                  \
        cross_leave("", __FILE__, __LINE__);                                                       \
    } while (0)

#define test_calloc calloc
#define test_free   free

#endif
