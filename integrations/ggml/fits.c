/* fits: see fits.h. ggml compares GGML_BACKEND_API_VERSION itself; this is about what may change
 * without a new one. */
#include "fits.h"

#include <string.h>

static int is_named(const char *name, const char *expected)
{
    return name != NULL && strcmp(name, expected) == 0;
}

static int lacks_functions(const struct kvpi_fits_found *found)
{
    for (size_t i = 0; i < sizeof found->needed / sizeof found->needed[0]; i++)
        if (found->needed[i] == NULL)
            return 1;
    return found->tensor_overhead == NULL || found->op_name == NULL || found->type_name == NULL;
}

const char *kvpi_fits_refusal(const struct kvpi_fits_found *found,
                              const struct kvpi_fits_built *built)
{
    if (lacks_functions(found))
        return "the functions of ggml are not in the library that loads it; a program that has "
               "ggml inside must export them";
    if (found->tensor_overhead() != built->tensor_overhead)
        return "a tensor has another size than in the headers that it was built with";
    int is_same = is_named(found->op_name(built->op), built->op_name);
    for (int i = 0; i < KVPI_FITS_TYPES; i++)
        is_same = is_same && is_named(found->type_name(built->types[i]), built->type_names[i]);
    return is_same ? NULL
                   : "operations or types have other numbers than in the headers that it was "
                     "built with";
}
