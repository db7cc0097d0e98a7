/* ucx_way: see the header. */
#define _POSIX_C_SOURCE 200809L

#include "ucx_way.h"

#include <kvpager/ucx/link.h>

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static int connects(uint32_t peers)
{
    kvp_ucx *ucx[2];
    kvp_ucx_link *links[2];
    kvp_link end;
    uint8_t cards[2][KVP_UCX_CARD_MAX];
    size_t n[2];
    kvp_ucx_config config;
    kvp_ucx_config_init(&config);
    config.peers = peers;
    for (int i = 0; i < 2; i++)
        if (kvp_ucx_create(&config, &ucx[i]) != KVP_OK ||
            kvp_ucx_open(ucx[i], cards[i], sizeof cards[i], &n[i], &links[i]) != KVP_OK)
            return 0;
    return kvp_ucx_connect(links[0], cards[1], n[1], &end) == KVP_OK;
}

int ucx_has_way(const char *tls, uint32_t peers)
{
    int status;
    const pid_t pid = fork();
    if (pid == 0) {
        (void)setenv("UCX_TLS", tls, 1);
        _exit(!connects(peers));
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}
