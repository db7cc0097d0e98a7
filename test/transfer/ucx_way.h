/* ucx_way: is there a way over UCX on this machine? Tests are skipped where there is none. */
#ifndef TEST_UCX_WAY_H
#define TEST_UCX_WAY_H

#include <stdint.h>

/* Tell whether UCX connects two of its workers with UCX_TLS=tls. Asked in a process of its own:
 * who forks later must not have started UCX. */
int ucx_has_way(const char *tls, uint32_t peers);

#endif
