/* metrics: the server's figures as Prometheus reads them. */
#ifndef KVPI_SERVE_METRICS_H
#define KVPI_SERVE_METRICS_H

#include "../engine/loop.h"

/* Answers by hundreds of their status, and those of 429. */
typedef struct kvpi_counts {
    atomic_ullong answers[6];
    atomic_ullong overloads;
    atomic_uint connections; /* gauge */
} kvpi_counts;

/* Gives the text; free it. NULL: no memory. */
char *kvpi_metrics_text(kvpi_loop *loop, kvpi_counts *counts);

#endif
