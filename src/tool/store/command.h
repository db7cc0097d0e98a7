/* kvpager store: what its files share. Only in builds with libkvpager_store. */
#ifndef KVPI_STORE_COMMAND_H
#define KVPI_STORE_COMMAND_H

#include <kvpager/store.h>
#include <stdbool.h>
#include <stdint.h>

#include "tool/report/figures.h"

/* What info, verify, list and evict were asked. */
typedef struct kvpi_store_args {
    const char *command; /* "store list", for messages */
    char *url;           /* file:PATH */
    const char *path;    /* as given, of a server `shown` */
    char shown[4200];    /* without the password */
    bool json;
    bool prometheus;
    bool records;
    bool dry_run;
    bool one_space;
    uint64_t space;
    uint64_t written_before; /* seconds since 1970; UINT64_MAX: any age */
    uint64_t now;            /* seconds since 1970 */
    uint8_t secret[1024];
    size_t secret_bytes;
} kvpi_store_args;

/* Each prints its report, and returns an exit status. */
int kvpi_store_info(const kvpi_store_args *args);
int kvpi_store_verify(const kvpi_store_args *args);
int kvpi_store_list(const kvpi_store_args *args);
int kvpi_store_evict(const kvpi_store_args *args);

/* bench.c; argv[0] is "bench". */
int kvpi_store_bench(int argc, char **argv);

#endif
