/* What `kvpager size` prints: for people, and its list of figures. */
#ifndef KVPI_SIZE_REPORT_H
#define KVPI_SIZE_REPORT_H

#include <stdint.h>
#include <stdio.h>

#include "tool/models/devices.h"
#include "tool/models/models.h"
#include "tool/report/figures.h"
#include "tool/size/size.h"
#include "tool/text.h"

typedef struct kvpi_size_report {
    const kvpi_model *model;
    const kvpi_device *device; /* NULL: the memory was given, or none */
    const kvpi_size_options *options;
    const kvpi_size *size;
    const char *weights_from; /* where weights_bytes is from; NULL: "--weights" */
} kvpi_size_report;

static inline double kvpi_size_gib(uint64_t bytes)
{
    return (double)bytes / (double)(UINT64_C(1) << 30);
}

/* Print a line of a table: what it is, its value, and where that is from. */
void kvpi_size_row(FILE *file, const char *label, kvpi_text value, const char *formula, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 4, 5)))
#endif
    ;

kvpi_text kvpi_size_gib_text(uint64_t bytes);

/* Print the figures for people, at most 80 columns wide, except a long file name. */
void kvpi_size_print(const kvpi_size_report *report, FILE *file);

/* Print the models and accelerators that have names. */
void kvpi_size_list(FILE *file);

/* Make the list of the figures. Returns: NULL when memory is short. Owns: the caller drops its
 * reference */
json_t *kvpi_size_figures(const kvpi_size_report *report);

/* The same of the models ("models") and accelerators ("devices") that have names. */
json_t *kvpi_size_list_figures(void);

#endif
