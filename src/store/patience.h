/* patience: when what failed is tried again: after a second, then after twice as long each time, up
 * to about a minute. What is tried may take a second itself, and no caller is served meanwhile. */
#ifndef KVPI_STORE_PATIENCE_H
#define KVPI_STORE_PATIENCE_H

#include <stdint.h>

#define KVPI_PATIENCE_FIRST_NS UINT64_C(1000000000)
#define KVPI_PATIENCE_MAX_NS   (64 * KVPI_PATIENCE_FIRST_NS)

struct kvpi_patience {
    uint64_t since_ns; /* when it failed last */
    uint64_t wait_ns;  /* 0: it did not */
};

/* Whether it is tried now. A clock that went back says so, too. */
static inline int kvpi_patience_due(const struct kvpi_patience *patience, uint64_t now_ns)
{
    return now_ns - patience->since_ns >= patience->wait_ns;
}

static inline void kvpi_patience_end(struct kvpi_patience *patience)
{
    patience->wait_ns = 0;
}

/* It failed. most_ns: how long it waits at most. */
static inline void kvpi_patience_lose(struct kvpi_patience *patience, uint64_t now_ns,
                                      uint64_t most_ns)
{
    patience->since_ns = now_ns;
    patience->wait_ns = patience->wait_ns == 0 ? KVPI_PATIENCE_FIRST_NS : patience->wait_ns * 2;
    if (patience->wait_ns > most_ns)
        patience->wait_ns = most_ns;
}

#endif
