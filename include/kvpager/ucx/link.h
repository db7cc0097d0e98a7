/* kvpager/ucx/link.h: links over UCX. Shared memory on one machine, RDMA if there is any, TCP.
 *
 *   kvp_ucx_create(NULL, &ucx);
 *   kvp_ucx_open(ucx, card, sizeof card, &n, &link);       one for each peer
 *   ... give the card to the peer, and have the peer's, by any way there is ...
 *   kvp_ucx_connect(link, their_card, n, &ends);
 *   kvp_sender_attach(sender, &ends, &number);
 *
 * This is a separate library, libkvpager_ucx, and the only part of kvpager that needs UCX. It sends
 * tagged messages (ucp_tag_send_nbx), which arrive in the order in which they were sent. UCX's own
 * configuration applies: UCX_TLS=tcp, and so on.
 *
 * A peer may die. Over TCP and RDMA UCX can report it, and then the link returns KVP_E_PEER. Over
 * shared memory (UCX 1.13) it cannot, and the link is silent. With KVP_UCX_REPORTED only transports
 * that can report it are used. Otherwise the caller must detect it elsewhere, and call
 * kvp_receiver_abort.
 *
 * Rules: all of one kvp_ucx is used from one thread at a time. Nothing blocks but destroy. Links
 * make progress together: progress of one moves all links of its kvp_ucx.
 */
#ifndef KVPAGER_UCX_LINK_H
#define KVPAGER_UCX_LINK_H

#include "../transfer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A UCX context and worker. */
typedef struct kvp_ucx kvp_ucx;

/* Which transports to a peer are used. */
enum {
    KVP_UCX_ANY = 0,     /* the fastest there is: shared memory on one machine (default) */
    KVP_UCX_REPORTED = 1 /* the fastest of those on which UCX reports that the peer is gone */
};

typedef struct kvp_ucx_config {
    size_t struct_size;  /* set by kvp_ucx_config_init */
    size_t max_message;  /* KVP_LINK_MESSAGE_MIN .. 2^30; default 256 KiB. Of two sides the smaller
                            one holds */
    uint32_t n_messages; /* buffers of a link in each direction, 1..1024; default 4: with 256 KiB
                            what stays in a processor's caches */
    uint32_t peers;      /* KVP_UCX_ANY, KVP_UCX_REPORTED */
} kvp_ucx_config;

/* Fill `config` with the defaults. A NULL config is ignored. Thread: pure. */
KVP_SIZED void kvp_ucx_config_init(kvp_ucx_config *config);

/* Start UCX.
 *
 * Takes:   config       copied; NULL: the defaults
 * Returns: KVP_OK; KVP_E_ARG; KVP_E_NO_MEMORY; KVP_E_IO: UCX refused
 */
KVP_API kvp_status kvp_ucx_create(const kvp_ucx_config *config, kvp_ucx **out_ucx);

/* Close every link, take back every registration, end UCX. NULL is ignored. Nothing may use the
 * links any more. Blocks: io, until UCX has let go. */
KVP_API void kvp_ucx_destroy(kvp_ucx *ucx);

/* Register memory with UCX as one piece, such as the mapping of a KV pool: for engines that put
 * into the slots of a ticket themselves. Links do not need it: messages are gathered into buffers
 * of the link's own, which are registered once, when it is opened.
 * Takes:   address, n_bytes   stays the caller's, and must stay until destroy
 * Returns: KVP_OK; KVP_E_ARG; KVP_E_NO_MEMORY; KVP_E_IO: UCX refused */
KVP_API kvp_status kvp_ucx_register(kvp_ucx *ucx, void *address, size_t n_bytes);

/* One end of a link to come. */
typedef struct kvp_ucx_link kvp_ucx_link;

/* Most bytes of a card. */
#define KVP_UCX_CARD_MAX 4096u

/* Open an end, and make its card: what the peer needs to reach it.
 *
 * Takes:   capacity     of out_card; 0 asks for the size only, and opens nothing
 * Gives:   out_card     [out_n_bytes]; out_n_bytes is written also on KVP_E_TOO_SMALL
 * Returns: KVP_OK; KVP_E_ARG; KVP_E_TOO_SMALL; KVP_E_NO_MEMORY; KVP_E_IO
 */
KVP_API kvp_status kvp_ucx_open(kvp_ucx *ucx, void *out_card, size_t capacity, size_t *out_n_bytes,
                                kvp_ucx_link **out_link);

/* Connect an end to that of a peer.
 *
 * Takes:   card         [n_bytes] the peer's
 * Gives:   out_end      for kvp_sender_attach or kvp_receiver_attach; valid until close
 * Returns: KVP_OK; KVP_E_ARG; KVP_E_STATE: it is connected; KVP_E_FORMAT: no card, or damaged;
 *          KVP_E_VERSION; KVP_E_PEER: UCX finds no way there; KVP_E_IO
 */
KVP_SIZED kvp_status kvp_ucx_connect(kvp_ucx_link *link, const void *card, size_t n_bytes,
                                     kvp_link *out_end);

/* Ask whether the peer is reached, and everything that was posted has reached it: before an end is
 * closed, or the process ends.
 * Returns: KVP_OK; KVP_E_AGAIN: call again, it makes progress; KVP_E_PEER, KVP_E_IO: broken;
 *          KVP_E_ARG; KVP_E_STATE: not connected */
KVP_API kvp_status kvp_ucx_flush(kvp_ucx_link *link);

/* Close an end, at once: what has not reached the peer does not any more, and the peer finds the
 * link broken. NULL is ignored. */
KVP_API void kvp_ucx_close(kvp_ucx_link *link);

#include "link_sized.h"

#ifdef __cplusplus
}
#endif
#endif
