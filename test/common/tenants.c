/* tenants: see tenants.h. */
#include "tenants.h"

kvp_config tenants_config(uint32_t usable, uint32_t host)
{
    kvp_config config = config_of(4, 4, usable);
    config.host_blocks = host == 0 ? 0 : host + 1;
    config.max_copies = 64;
    config.quotas = 1;
    return config;
}

struct tenants make_tenants(const kvp_config *config)
{
    struct tenants t = {.w = make_world(config)};
    assert_ok(kvp_ns_open(t.w.cache, "a", 1, &t.a));
    assert_ok(kvp_ns_open(t.w.cache, "b", 1, &t.b));
    return t;
}

kvp_seq open_in(const struct tenants *t, kvp_ns ns, int32_t first, uint32_t n_tokens)
{
    const kvp_prompt prompt = prompt_of(ints(first), n_tokens);
    kvp_seq seq;
    assert_ok(kvp_seq_open(t->w.cache, ns, &prompt, &seq, NULL));
    assert_ok(kvp_seq_commit(t->w.cache, seq, n_tokens));
    return seq;
}

kvp_ns_info info_in(const struct tenants *t, kvp_ns ns)
{
    kvp_ns_info info;
    assert_ok(kvp_ns_info_get(t->w.cache, ns, &info));
    return info;
}
