/* fits: whether the ggml that loads the library is the one whose headers it was built with. Knows
 * nothing of ggml's headers itself, so that every refusal is tested without ggml. */
#ifndef KVPI_GGML_FITS_H
#define KVPI_GGML_FITS_H

#include <stddef.h>

enum { KVPI_FITS_TYPES = 4 };

/* What is needed of ggml, as found in the process; ggml's enums are int here. NULL: not there. */
struct kvpi_fits_found {
    const void *needed[3]; /* functions that are only called later */
    size_t (*tensor_overhead)(void);
    const char *(*op_name)(int op);
    const char *(*type_name)(int type);
};

/* What the headers say. */
struct kvpi_fits_built {
    size_t tensor_overhead;
    int op;
    const char *op_name;
    int types[KVPI_FITS_TYPES];
    const char *type_names[KVPI_FITS_TYPES];
};

/* NULL, or the reason why this build does not work here. */
const char *kvpi_fits_refusal(const struct kvpi_fits_found *found,
                              const struct kvpi_fits_built *built);

#endif
