/* What every report says of its trace: as what it was read, how far its hits can be believed. */
#ifndef KVPI_READING_H
#define KVPI_READING_H

#include <stdio.h>

#include "tool/report/figures.h"
#include "tool/requests/requests.h"

/* Add the list "reading". */
void kvpi_reading_add(kvpi_figures *to, const kvpi_requests_about *about);

/* Print lines of at most 80 columns: nothing where there is nothing to say but the format. */
void kvpi_reading_print(const kvpi_requests_about *about, FILE *file);

#endif
