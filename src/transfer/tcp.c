/* tcp: links over a connected stream socket, such as TCP to another host. Each end has two rings of
 * buffers: messages are gathered into one and sent from there, and received into the other.
 *
 *   a buffer            0       12            16
 *                       | -     | u32 n_bytes | message ... |
 *                               |---- what crosses --------|
 *
 *   hello, first thing on the wire: "kvpt", u8 version, 3 zero bytes, u32 max_message, 4 zero bytes
 *
 * The smaller max_message of both ends holds for both.
 *
 * C1  Of the ring out the first `n` messages wait, and `moved` bytes of the first one are sent. Of
 *     the ring in the first `n` have come, and `moved` bytes of the one behind them.
 * C2  A length is checked before a byte of its message is read: it fits into the buffer.
 * C3  What has come whole is taken, also from a peer that is gone or breaks C2: a send that fails
 *     ends nothing here, for the system may still have what came before. */
#define _POSIX_C_SOURCE 200809L

#include <stdlib.h>
#include <string.h>

#include <kvpager/transfer.h>

#include "base/bytes.h"
#include "base/why.h"
#include "transfer/sockets.h"

enum {
    TCP_VERSION = 1,
    TCP_HELLO = 16,
    AT_LENGTH = 12,
    AT_BODY = 16,
    LENGTH_BYTES = AT_BODY - AT_LENGTH,
    TCP_MOST_MESSAGES = 65536,
    TCP_MOST_BYTES = 1 << 30 /* of a message */
};

static const uint8_t TCP_MAGIC[4] = {'k', 'v', 'p', 't'};

struct tcp_ring {
    unsigned char *at; /* [n_messages] places of stride bytes */
    uint64_t first;    /* number of the first message in it */
    uint32_t n;
    size_t moved;
};

struct kvp_tcp {
    int socket;
    int is_connected;
    int has_ended; /* nothing more comes */
    int has_taken; /* a message that is not given back */
    kvp_status broken;
    size_t max_message;
    size_t stride;
    uint32_t n_messages; /* of each ring */
    size_t lent;         /* bytes; 0: nothing is */
    struct tcp_ring out;
    struct tcp_ring in;
    uint8_t hello[TCP_HELLO]; /* the peer's */
    size_t n_hello;
};

static unsigned char *place_of(const kvp_tcp *tcp, const struct tcp_ring *ring, uint32_t i)
{
    return ring->at + (size_t)((ring->first + i) % tcp->n_messages) * tcp->stride;
}

static size_t length_at(const unsigned char *place)
{
    return (size_t)kvpi_bytes_load(place + AT_LENGTH, LENGTH_BYTES);
}

static void drop_first(struct tcp_ring *ring)
{
    ring->first++;
    ring->n--;
}

/* ---------------------------------------------------------------------------- opening, closing */

static int wrong_for_tcp(int socket, size_t max_message, uint32_t n_messages, kvp_why *why)
{
    return kvpi_why_range(why, "max_message", max_message, KVP_LINK_MESSAGE_MIN, TCP_MOST_BYTES) ||
           kvpi_why_range(why, "n_messages", n_messages, 1, TCP_MOST_MESSAGES) ||
           kvpi_why_if(why, !kvpi_socket_is_stream(socket), "socket", NULL,
                       "is no connected stream socket");
}

static int make_tcp_rings(kvp_tcp *tcp)
{
    const size_t stride = (AT_BODY + tcp->max_message + 63) & ~(size_t)63;
    if (stride > SIZE_MAX / 2 / tcp->n_messages)
        return 0;
    tcp->stride = stride;
    tcp->out.at = malloc(2 * stride * tcp->n_messages);
    if (!tcp->out.at)
        return 0;
    tcp->in.at = tcp->out.at + stride * tcp->n_messages;
    return 1;
}

static int has_said_hello(const kvp_tcp *tcp)
{
    uint8_t hello[TCP_HELLO] = {0};
    memcpy(hello, TCP_MAGIC, sizeof TCP_MAGIC);
    hello[4] = TCP_VERSION;
    kvpi_bytes_store(hello + 8, tcp->max_message, 4);
    return kvpi_socket_send(tcp->socket, hello, sizeof hello) == TCP_HELLO;
}

kvp_status kvp_tcp_open(int socket, size_t max_message, uint32_t n_messages, kvp_tcp **out_tcp,
                        kvp_why *out_why)
{
    kvpi_why_clear(out_why);
    if (kvpi_why_if(out_why, !out_tcp, "out_tcp", NULL, "is NULL") ||
        wrong_for_tcp(socket, max_message, n_messages, out_why))
        return KVP_E_ARG;
    kvp_tcp *tcp = calloc(1, sizeof *tcp);
    if (!tcp)
        return KVP_E_NO_MEMORY;
    tcp->socket = -1;
    tcp->max_message = max_message;
    tcp->n_messages = n_messages;
    kvp_status status = KVP_E_NO_MEMORY;
    if (kvpi_why_if(out_why, !make_tcp_rings(tcp), "max_message", NULL,
                    "the system gave no memory for the messages"))
        goto fail;
    status = KVP_E_IO;
    tcp->socket = kvpi_socket_keep(socket);
    if (kvpi_why_if(out_why, tcp->socket < 0, "socket", NULL, "the system gave no descriptor"))
        goto fail;
    status = KVP_E_PEER;
    if (kvpi_why_if(out_why, !has_said_hello(tcp), "socket", NULL,
                    "the peer has closed it, or it is full already"))
        goto fail;
    *out_tcp = tcp;
    return KVP_OK;
fail:
    kvp_tcp_close(tcp);
    return status;
}

void kvp_tcp_close(kvp_tcp *tcp)
{
    if (!tcp)
        return;
    kvpi_socket_close(tcp->socket);
    free(tcp->out.at);
    free(tcp);
}

/* -------------------------------------------------------------------------------------- moving */

static void break_tcp(kvp_tcp *tcp, kvp_status status)
{
    if (tcp->broken == KVP_OK)
        tcp->broken = status;
}

/* Send what waits, as far as the system takes it. */
static void send_waiting(kvp_tcp *tcp)
{
    struct tcp_ring *out = &tcp->out;
    while (out->n > 0 && tcp->broken == KVP_OK) {
        const unsigned char *place = place_of(tcp, out, 0);
        const size_t whole = LENGTH_BYTES + length_at(place);
        const long n =
            kvpi_socket_send(tcp->socket, place + AT_LENGTH + out->moved, whole - out->moved);
        if (n < 0)
            break_tcp(tcp, KVP_E_PEER);
        if (n <= 0)
            return;
        out->moved += (size_t)n;
        if (out->moved == whole) {
            drop_first(out);
            out->moved = 0;
        }
    }
}

static void end_tcp(kvp_tcp *tcp, kvp_status status)
{
    tcp->has_ended = 1;
    break_tcp(tcp, status);
}

/* Receive more of the message that comes next. 0: nothing came. */
static int receive_more(kvp_tcp *tcp)
{
    struct tcp_ring *in = &tcp->in;
    unsigned char *place = place_of(tcp, in, in->n);
    const size_t whole = LENGTH_BYTES + (in->moved < LENGTH_BYTES ? 0 : length_at(place));
    const long n =
        kvpi_socket_receive(tcp->socket, place + AT_LENGTH + in->moved, whole - in->moved);
    if (n < 0)
        end_tcp(tcp, KVP_E_PEER);
    if (n <= 0)
        return 0;
    in->moved += (size_t)n;
    if (in->moved == LENGTH_BYTES &&
        (length_at(place) == 0 || length_at(place) > tcp->max_message)) {
        end_tcp(tcp, KVP_E_IO); /* C2 */
        return 0;
    }
    if (in->moved > LENGTH_BYTES && in->moved == LENGTH_BYTES + length_at(place)) {
        in->n++;
        in->moved = 0;
    }
    return 1;
}

static void receive_waiting(kvp_tcp *tcp)
{
    while (tcp->in.n < tcp->n_messages && !tcp->has_ended && receive_more(tcp))
        ;
}

/* ---------------------------------------------------------------------------------- as a link */

static void progress_tcp(void *context)
{
    send_waiting(context);
    receive_waiting(context);
}

static kvp_status lend_tcp(void *context, size_t n_bytes, void **out_buffer)
{
    kvp_tcp *tcp = context;
    if (n_bytes == 0 || n_bytes > tcp->max_message)
        return KVP_E_ARG;
    if (tcp->out.n == tcp->n_messages)
        send_waiting(tcp);
    if (tcp->broken != KVP_OK)
        return tcp->broken;
    if (tcp->out.n == tcp->n_messages)
        return KVP_E_AGAIN;
    tcp->lent = n_bytes;
    *out_buffer = place_of(tcp, &tcp->out, tcp->out.n) + AT_BODY;
    return KVP_OK;
}

static kvp_status post_tcp(void *context, size_t n_bytes)
{
    kvp_tcp *tcp = context;
    if (n_bytes == 0 || n_bytes > tcp->lent)
        return KVP_E_ARG;
    tcp->lent = 0;
    kvpi_bytes_store(place_of(tcp, &tcp->out, tcp->out.n) + AT_LENGTH, n_bytes, LENGTH_BYTES);
    tcp->out.n++;
    send_waiting(tcp);
    return tcp->broken;
}

static kvp_status take_tcp(void *context, const void **out_bytes, size_t *out_n_bytes)
{
    kvp_tcp *tcp = context;
    if (tcp->in.n == 0)
        receive_waiting(tcp);
    if (tcp->in.n == 0)
        return tcp->broken == KVP_OK ? KVP_E_AGAIN : tcp->broken;
    const unsigned char *place = place_of(tcp, &tcp->in, 0);
    tcp->has_taken = 1;
    *out_bytes = place + AT_BODY;
    *out_n_bytes = length_at(place);
    return KVP_OK;
}

static void give_back_tcp(void *context)
{
    kvp_tcp *tcp = context;
    if (!tcp->has_taken)
        return;
    tcp->has_taken = 0;
    drop_first(&tcp->in);
}

static const kvp_link TCP_CALLS = {sizeof TCP_CALLS, 0,        NULL,          lend_tcp,
                                   post_tcp,         take_tcp, give_back_tcp, progress_tcp};

/* --------------------------------------------------------------------------------- connecting */

static kvp_status receive_tcp_hello(kvp_tcp *tcp, kvp_why *why)
{
    const long n =
        kvpi_socket_receive(tcp->socket, tcp->hello + tcp->n_hello, TCP_HELLO - tcp->n_hello);
    if (kvpi_why_if(why, n < 0, "peer", NULL, "is gone"))
        return KVP_E_PEER;
    tcp->n_hello += (size_t)n;
    if (tcp->n_hello < TCP_HELLO)
        return KVP_E_AGAIN;
    if (kvpi_why_if(why, memcmp(tcp->hello, TCP_MAGIC, sizeof TCP_MAGIC) != 0, "peer", NULL,
                    "sent no hello of a link over TCP"))
        return KVP_E_FORMAT;
    if (kvpi_why_if(why, tcp->hello[4] != TCP_VERSION, "peer", NULL,
                    "has another version of links over TCP"))
        return KVP_E_VERSION;
    const uint64_t theirs = kvpi_bytes_load(tcp->hello + 8, 4);
    if (kvpi_why_if(why, theirs < KVP_LINK_MESSAGE_MIN, "peer", NULL,
                    "takes messages that are too small"))
        return KVP_E_FORMAT;
    if (tcp->max_message > theirs)
        tcp->max_message = (size_t)theirs;
    return KVP_OK;
}

kvp_status kvp_tcp_connect(kvp_tcp *tcp, kvp_link *out_end, kvp_why *out_why)
{
    kvpi_why_clear(out_why);
    if (!tcp || !out_end)
        return KVP_E_ARG;
    if (tcp->is_connected)
        return KVP_E_STATE;
    if (tcp->broken != KVP_OK)
        return tcp->broken;
    const kvp_status status = receive_tcp_hello(tcp, out_why);
    if (status == KVP_E_AGAIN)
        return status;
    tcp->broken = status;
    if (status != KVP_OK)
        return status;
    tcp->is_connected = 1;
    *out_end = TCP_CALLS;
    out_end->max_message = tcp->max_message;
    out_end->context = tcp;
    return KVP_OK;
}

kvp_status kvp_tcp_flush(kvp_tcp *tcp)
{
    if (!tcp)
        return KVP_E_ARG;
    if (!tcp->is_connected)
        return KVP_E_STATE;
    send_waiting(tcp);
    const int flushed = kvpi_socket_flushed(tcp->socket);
    if (flushed < 0)
        break_tcp(tcp, KVP_E_PEER);
    if (tcp->broken != KVP_OK)
        return tcp->broken;
    return tcp->out.n == 0 && flushed ? KVP_OK : KVP_E_AGAIN;
}
