/* fits: every difference between headers and library is refused, with a sentence that names it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "../fits.h"

enum { OVERHEAD = 368, ATTENTION = 74 };

static size_t overhead_of_tensor(void)
{
    return OVERHEAD;
}

static const char *name_of_op(int op)
{
    return op == ATTENTION ? "FLASH_ATTN_EXT" : op == 3 ? "ADD" : NULL;
}

static const char *name_of_type(int type)
{
    static const char *const names[] = {"f32", "f16", "q4_0"};
    return type >= 0 && type < 3 ? names[type] : type == 8 ? "q8_0" : type == 30 ? "bf16" : NULL;
}

static struct kvpi_fits_found found;
static struct kvpi_fits_built built;

static int set_up(void **state)
{
    (void)state;
    found = (struct kvpi_fits_found){.needed = {&found, &found, &found},
                                     .tensor_overhead = overhead_of_tensor,
                                     .op_name = name_of_op,
                                     .type_name = name_of_type};
    built = (struct kvpi_fits_built){.tensor_overhead = OVERHEAD,
                                     .op = ATTENTION,
                                     .op_name = "FLASH_ATTN_EXT",
                                     .types = {0, 1, 30, 8},
                                     .type_names = {"f32", "f16", "bf16", "q8_0"}};
    return 0;
}

static void refuse(const char *word)
{
    const char *why = kvpi_fits_refusal(&found, &built);
    assert_non_null(why);
    assert_non_null(strstr(why, word));
    (void)set_up(NULL);
    assert_null(kvpi_fits_refusal(&found, &built));
}

static void missing_functions(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        found.needed[i] = NULL;
        refuse("functions");
    }
    found.tensor_overhead = NULL;
    refuse("functions");
    found.op_name = NULL;
    refuse("functions");
    found.type_name = NULL;
    refuse("functions");
}

static void another_size(void **state)
{
    (void)state;
    built.tensor_overhead += 8;
    refuse("size");
    built.tensor_overhead -= 8;
    refuse("size");
}

static void other_numbers(void **state)
{
    (void)state;
    built.op = 3;
    refuse("numbers");
    built.op = 75;
    refuse("numbers");
    for (int i = 0; i < KVPI_FITS_TYPES; i++) {
        built.types[i] = 2;
        refuse("numbers");
        built.types[i] = 99;
        refuse("numbers");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(missing_functions, set_up),
        cmocka_unit_test_setup(another_size, set_up),
        cmocka_unit_test_setup(other_numbers, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
