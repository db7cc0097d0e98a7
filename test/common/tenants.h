/* tenants: a world of three namespaces that share a cache with quotas. See world.h. */
#ifndef TEST_TENANTS_H
#define TEST_TENANTS_H

#include <kvpager/quotas.h>

#include "world.h"

/* S = U = 4; the namespaces "" (w.ns), "a" and "b". */
struct tenants {
    world w;
    kvp_ns a;
    kvp_ns b;
};

/* So many usable blocks on the device, and on the host (0: none); room for 64 copies. */
kvp_config tenants_config(uint32_t usable, uint32_t host);
struct tenants make_tenants(const kvp_config *config);

/* A sequence of n tokens from `first` on, all computed. */
kvp_seq open_in(const struct tenants *t, kvp_ns ns, int32_t first, uint32_t n_tokens);

kvp_ns_info info_in(const struct tenants *t, kvp_ns ns);

#endif
