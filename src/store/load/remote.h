/* remote: the calls for operators, for back ends that give their records one by one. */
#ifndef KVPI_STORE_REMOTE_H
#define KVPI_STORE_REMOTE_H

#include "store/backend.h"

/* As kvp_store_scan and kvp_store_clean. */
kvp_status kvpi_remote_scan(const struct kvpi_backend *backend, struct kvpi_url *url,
                            const kvp_store_scan_options *options, char *out_why, size_t why_bytes);
kvp_status kvpi_remote_clean(const struct kvpi_backend *backend, struct kvpi_url *url,
                             const kvp_store_match *match, kvp_store_cleaned *out_cleaned,
                             char *out_why, size_t why_bytes);

#endif
