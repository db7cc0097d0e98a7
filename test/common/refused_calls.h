/* refused_calls: a table of calls that must refuse what they get and change nothing. The file that
 * includes it defines struct call, with the world `w` and its `cache`, before. */
#ifndef TEST_REFUSED_CALLS_H
#define TEST_REFUSED_CALLS_H

#include "world.h"

struct named_call {
    kvp_status (*call)(struct call *c);
    const char *name;
    int changes; /* the cache: a failure is noted as shortage */
};

/* What `name` calls, with the arguments of `c`. */
#define CALLS(name, ...)                                                                           \
    static kvp_status call_##name(struct call *c)                                                  \
    {                                                                                              \
        return __VA_ARGS__;                                                                        \
    }

#define CALL(name, changes)                                                                        \
    {                                                                                              \
        call_##name, #name, changes                                                                \
    }

/* Leave a shortage that no call here gives. */
static void spoil_shortage(struct call *c)
{
    kvp_seq seqs[8];
    uint32_t n = 0;
    const kvp_prompt empty = prompt_of(NULL, 0);
    while (kvp_seq_open(c->cache, c->w->ns, &empty, &seqs[n], NULL) == KVP_OK)
        n++;
    while (n > 0)
        close_seq(c->w, seqs[--n]);
    assert_int_equal(shortage_of(c->w).status, KVP_E_NO_SEQS);
}

static void expect_refusal(const struct named_call *named, struct call *c)
{
    spoil_shortage(c);
    observed before = observe(c->w);
    const kvp_status status = named->call(c);
    if (status != KVP_E_HANDLE)
        print_error("%s\n", named->name);
    assert_int_equal(status, KVP_E_HANDLE);
    assert_observed(c->w, &before, __FILE__, __LINE__);
    assert_int_equal(shortage_of(c->w).status, named->changes ? KVP_E_HANDLE : KVP_E_NO_SEQS);
}

#endif
