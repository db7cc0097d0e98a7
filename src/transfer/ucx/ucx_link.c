/* ucx_link: links as tagged messages of UCX.
 *
 *   kvp_ucx          context, worker, links, registrations
 *   kvp_ucx_link     endpoint; a ring of buffers that are sent, a ring that is received into
 *
 *   out   [n]  next is lent, then posted; it is free again when its request is done
 *   in    [n]  all posted to UCX, in ring order; UCX matches messages to them in that order, and
 *              they are taken in that order, so rendezvous and eager messages cannot overtake
 *
 *   card  "kvpu", u8 version, 3 zero bytes, u32 n_bytes, u32 max_message, u64 tag, u64 checksum
 *         (FNV-1a of all but itself), then the worker's address
 *
 * U1  Each end has a tag of its own, never used again by its worker: what a closed link's peer
 *     still sends matches nothing.
 * U2  A buffer is given back to the system only when UCX has no request on it. A link that is
 *     closed earlier keeps its buffers until the worker is gone.
 */
#include <kvpager/ucx/link.h>

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include <ucp/api/ucp.h>

#include "base/sized.h"

enum { CARD_VERSION = 1, CARD_BYTES = 32, MAX_REGISTERED = 64 };

static const uint8_t MAGIC[4] = {'k', 'v', 'p', 'u'};

struct slot {
    uint8_t *bytes;
    void *request; /* of UCX; NULL: none */
    size_t n_bytes;
};

struct ring {
    struct slot *slots;
    uint32_t next;
};

struct kvp_ucx_link {
    kvp_ucx *ucx;
    kvp_ucx_link *next; /* of the same kvp_ucx */
    ucp_ep_h endpoint;  /* NULL: not connected */
    uint64_t tag;
    uint64_t peer_tag;
    size_t max_message;
    size_t lent; /* bytes; 0: nothing is */
    kvp_status broken;
    int is_closed;
    int is_dirty; /* posted since the last flush began */
    void *flush;  /* request; NULL: none */
    struct ring out;
    struct ring in;
    uint8_t *buffers;
    ucp_mem_h memory; /* the buffers, registered once for all messages */
};

struct kvp_ucx {
    kvp_ucx_config config;
    ucp_context_h context;
    ucp_worker_h worker;
    kvp_ucx_link *links;
    uint64_t last_tag;
    uint32_t n_registered;
    ucp_mem_h registered[MAX_REGISTERED];
};

static void store(uint8_t *at, uint64_t value, unsigned n_bytes)
{
    for (unsigned i = 0; i < n_bytes; i++)
        at[i] = (uint8_t)(value >> (8 * i));
}

static uint64_t load(const uint8_t *at, unsigned n_bytes)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < n_bytes; i++)
        value |= (uint64_t)at[i] << (8 * i);
    return value;
}

/* --------------------------------------------------------------------------------- UCX itself */

static void config_defaults(kvp_ucx_config *config)
{
    *config = (kvp_ucx_config){
        .struct_size = sizeof(kvp_ucx_config), .max_message = 256 * 1024, .n_messages = 4};
}

void kvp_ucx_config_init_sized(kvp_ucx_config *config, size_t config_size)
{
    kvp_ucx_config full;
    config_defaults(&full);
    kvpi_sized_init(config, config_size, &full, sizeof(full));
}

static int is_valid(const kvp_ucx_config *config)
{
    return config->max_message >= KVP_LINK_MESSAGE_MIN && config->max_message <= 1u << 30 &&
           config->n_messages >= 1 && config->n_messages <= 1024 &&
           config->peers <= KVP_UCX_REPORTED;
}

static kvp_status start(kvp_ucx *ucx)
{
    const ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                                 .features = UCP_FEATURE_TAG | UCP_FEATURE_RMA};
    const ucp_worker_params_t worker = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                        .thread_mode = UCS_THREAD_MODE_SINGLE};
    ucp_config_t *config;
    if (ucp_config_read(NULL, NULL, &config) != UCS_OK)
        return KVP_E_IO;
    const ucs_status_t status = ucp_init(&params, config, &ucx->context);
    ucp_config_release(config);
    if (status != UCS_OK)
        return KVP_E_IO;
    if (ucp_worker_create(ucx->context, &worker, &ucx->worker) != UCS_OK) {
        ucp_cleanup(ucx->context);
        return KVP_E_IO;
    }
    return KVP_OK;
}

kvp_status kvp_ucx_create(const kvp_ucx_config *config, kvp_ucx **out_ucx)
{
    kvp_ucx_config own;
    config_defaults(&own);
    const kvp_ucx_config *known = config ? kvpi_sized_take(config, &own, sizeof(own)) : &own;
    if (!out_ucx || !known || !is_valid(known))
        return KVP_E_ARG;
    kvp_ucx *ucx = calloc(1, sizeof *ucx);
    if (!ucx)
        return KVP_E_NO_MEMORY;
    ucx->config = *known;
    const kvp_status status = start(ucx);
    if (status != KVP_OK) {
        free(ucx);
        return status;
    }
    *out_ucx = ucx;
    return KVP_OK;
}

static kvp_status map(const kvp_ucx *ucx, void *address, size_t n_bytes, ucp_mem_h *out_memory)
{
    const ucp_mem_map_params_t params = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
                                                       UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                                         .address = address,
                                         .length = n_bytes};
    return ucp_mem_map(ucx->context, &params, out_memory) == UCS_OK ? KVP_OK : KVP_E_IO;
}

kvp_status kvp_ucx_register(kvp_ucx *ucx, void *address, size_t n_bytes)
{
    if (!ucx || !address || n_bytes == 0)
        return KVP_E_ARG;
    if (ucx->n_registered == MAX_REGISTERED)
        return KVP_E_NO_MEMORY;
    const kvp_status status = map(ucx, address, n_bytes, &ucx->registered[ucx->n_registered]);
    ucx->n_registered += status == KVP_OK;
    return status;
}

/* ------------------------------------------------------------------------------------ requests */

static void on_error(void *argument, ucp_ep_h endpoint, ucs_status_t status)
{
    kvp_ucx_link *link = argument;
    (void)endpoint;
    (void)status;
    if (link->broken == KVP_OK)
        link->broken = KVP_E_PEER;
}

static void break_with(kvp_ucx_link *link, ucs_status_t status)
{
    if (link->broken == KVP_OK)
        link->broken = status == UCS_ERR_MESSAGE_TRUNCATED ? KVP_E_IO : KVP_E_PEER;
}

static int is_done(const void *request)
{
    return !request || ucp_request_check_status((void *)(uintptr_t)request) != UCS_INPROGRESS;
}

/* Have UCX receive into a slot. */
static void await(kvp_ucx_link *link, struct slot *slot)
{
    const ucp_request_param_t param = {.op_attr_mask =
                                           UCP_OP_ATTR_FLAG_NO_IMM_CMPL | UCP_OP_ATTR_FIELD_MEMH,
                                       .memh = link->memory};
    void *request = ucp_tag_recv_nbx(link->ucx->worker, slot->bytes, link->ucx->config.max_message,
                                     link->tag, UINT64_MAX, &param);
    slot->request = UCS_PTR_IS_ERR(request) ? NULL : request;
    if (UCS_PTR_IS_ERR(request))
        break_with(link, UCS_PTR_STATUS(request));
}

/* ----------------------------------------------------------------------------- opening, closing */

static kvp_status make_rings(kvp_ucx_link *link)
{
    const size_t n = link->ucx->config.n_messages;
    const size_t stride = (link->ucx->config.max_message + 63) & ~(size_t)63;
    if (stride > SIZE_MAX / 2 / n)
        return KVP_E_NO_MEMORY;
    link->buffers = aligned_alloc(64, 2 * n * stride);
    link->out.slots = calloc(2 * n, sizeof(struct slot));
    if (!link->buffers || !link->out.slots)
        return KVP_E_NO_MEMORY;
    link->in.slots = link->out.slots + n;
    for (size_t i = 0; i < 2 * n; i++)
        link->out.slots[i].bytes = link->buffers + i * stride;
    return map(link->ucx, link->buffers, 2 * n * stride, &link->memory);
}

static void free_link(kvp_ucx_link *link)
{
    if (link->memory)
        (void)ucp_mem_unmap(link->ucx->context, link->memory);
    free(link->buffers);
    free(link->out.slots);
    free(link);
}

static uint64_t checksum_of(const uint8_t *card, size_t n_bytes)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < n_bytes; i++)
        hash = (hash ^ (i >= 24 && i < CARD_BYTES ? 0 : card[i])) * UINT64_C(0x100000001b3);
    return hash;
}

static kvp_status put_card(const kvp_ucx_link *link, uint8_t *out, size_t capacity,
                           size_t *out_n_bytes)
{
    ucp_address_t *address;
    size_t n_address;
    if (ucp_worker_get_address(link->ucx->worker, &address, &n_address) != UCS_OK)
        return KVP_E_IO;
    const size_t n_bytes = CARD_BYTES + n_address;
    kvp_status status = n_bytes > KVP_UCX_CARD_MAX ? KVP_E_IO : KVP_OK;
    if (status == KVP_OK) {
        *out_n_bytes = n_bytes;
        status = capacity > 0 && capacity < n_bytes ? KVP_E_TOO_SMALL : KVP_OK;
    }
    if (status == KVP_OK && capacity > 0) {
        assert(out != NULL);
        memset(out, 0, CARD_BYTES);
        memcpy(out, MAGIC, sizeof MAGIC);
        out[4] = CARD_VERSION;
        store(out + 8, n_bytes, 4);
        store(out + 12, link->max_message, 4);
        store(out + 16, link->tag, 8);
        memcpy(out + CARD_BYTES, address, n_address);
        store(out + 24, checksum_of(out, n_bytes), 8);
    }
    ucp_worker_release_address(link->ucx->worker, address);
    return status;
}

kvp_status kvp_ucx_open(kvp_ucx *ucx, void *out_card, size_t capacity, size_t *out_n_bytes,
                        kvp_ucx_link **out_link)
{
    if (!ucx || (!out_card && capacity > 0) || !out_n_bytes || !out_link)
        return KVP_E_ARG;
    kvp_ucx_link *link = calloc(1, sizeof *link);
    if (!link)
        return KVP_E_NO_MEMORY;
    link->ucx = ucx;
    link->tag = ucx->last_tag + 1;
    link->max_message = ucx->config.max_message;
    kvp_status status = make_rings(link);
    if (status == KVP_OK)
        status = put_card(link, out_card, capacity, out_n_bytes);
    if (status != KVP_OK || capacity == 0) {
        free_link(link);
        return status;
    }
    ucx->last_tag++;
    link->next = ucx->links;
    ucx->links = link;
    *out_link = link;
    return KVP_OK;
}

/* Begin to close; what is still on its way is cancelled. */
static void close_link(kvp_ucx_link *link)
{
    const ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                       .flags = UCP_EP_CLOSE_FLAG_FORCE};
    const uint32_t n = link->ucx->config.n_messages;
    link->is_closed = 1;
    for (uint32_t i = 0; i < n; i++)
        if (!is_done(link->in.slots[i].request))
            ucp_request_cancel(link->ucx->worker, link->in.slots[i].request);
    if (link->endpoint) {
        void *request = ucp_ep_close_nbx(link->endpoint, &force);
        if (UCS_PTR_IS_PTR(request))
            ucp_request_free(request); /* UCX finishes it by itself */
    }
    link->endpoint = NULL;
    (void)ucp_worker_progress(link->ucx->worker);
}

/* U2: let go of every request that is done; 1: none is left. */
static int is_quiet(kvp_ucx_link *link)
{
    int quiet = 1;
    for (uint32_t i = 0; i < 2 * link->ucx->config.n_messages; i++) {
        struct slot *slot = &link->out.slots[i];
        if (!is_done(slot->request)) {
            quiet = 0;
            continue;
        }
        if (slot->request)
            ucp_request_free(slot->request);
        slot->request = NULL;
    }
    if (link->flush && !is_done(link->flush))
        return 0;
    if (link->flush)
        ucp_request_free(link->flush);
    link->flush = NULL;
    return quiet;
}

void kvp_ucx_close(kvp_ucx_link *link)
{
    if (!link || link->is_closed)
        return;
    close_link(link);
    if (!is_quiet(link))
        return;
    kvp_ucx_link **at = &link->ucx->links;
    while (*at != link)
        at = &(*at)->next;
    *at = link->next;
    free_link(link);
}

void kvp_ucx_destroy(kvp_ucx *ucx)
{
    if (!ucx)
        return;
    for (kvp_ucx_link *link = ucx->links; link; link = link->next) {
        if (!link->is_closed)
            close_link(link);
        if (is_quiet(link))
            continue;
        for (uint32_t i = 0; i < 2 * ucx->config.n_messages; i++)
            if (link->out.slots[i].request)
                ucp_request_free(link->out.slots[i].request);
        if (link->flush)
            ucp_request_free(link->flush);
    }
    ucp_worker_destroy(ucx->worker);
    for (kvp_ucx_link *link = ucx->links, *next; link; link = next) {
        next = link->next;
        free_link(link);
    }
    for (uint32_t i = 0; i < ucx->n_registered; i++)
        (void)ucp_mem_unmap(ucx->context, ucx->registered[i]);
    ucp_cleanup(ucx->context);
    free(ucx);
}

/* --------------------------------------------------------------------------------- as a link */

static void progress(void *context)
{
    const kvp_ucx_link *link = context;
    /* Bounded: each pass may bring as many messages as there is room for, and no more. */
    for (uint32_t i = 0; i < link->ucx->config.n_messages; i++)
        if (ucp_worker_progress(link->ucx->worker) == 0)
            break;
}

/* The slot of a ring whose turn it is, its request collected; NULL: it is not done. */
static struct slot *next_slot(kvp_ucx_link *link, struct ring *ring)
{
    struct slot *slot = &ring->slots[ring->next];
    if (!slot->request)
        return slot;
    ucp_tag_recv_info_t info = {0};
    const ucs_status_t status = ring == &link->in ? ucp_tag_recv_request_test(slot->request, &info)
                                                  : ucp_request_check_status(slot->request);
    if (status == UCS_INPROGRESS)
        return NULL;
    ucp_request_free(slot->request);
    slot->request = NULL;
    slot->n_bytes = info.length;
    if (status != UCS_OK) {
        break_with(link, status);
        return NULL;
    }
    return slot;
}

static kvp_status lend(void *context, size_t n_bytes, void **out_buffer)
{
    kvp_ucx_link *link = context;
    if (n_bytes == 0 || n_bytes > link->max_message)
        return KVP_E_ARG;
    if (link->broken != KVP_OK)
        return link->broken;
    const struct slot *slot = next_slot(link, &link->out);
    if (!slot) {
        progress(link);
        slot = link->broken == KVP_OK ? next_slot(link, &link->out) : NULL;
    }
    if (!slot)
        return link->broken != KVP_OK ? link->broken : KVP_E_AGAIN;
    link->lent = n_bytes;
    *out_buffer = slot->bytes;
    return KVP_OK;
}

static kvp_status post(void *context, size_t n_bytes)
{
    kvp_ucx_link *link = context;
    const ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_MEMH,
                                       .memh = link->memory};
    struct slot *slot = &link->out.slots[link->out.next];
    if (n_bytes == 0 || n_bytes > link->lent)
        return KVP_E_ARG;
    link->lent = 0;
    if (link->broken != KVP_OK)
        return link->broken;
    void *request = ucp_tag_send_nbx(link->endpoint, slot->bytes, n_bytes, link->peer_tag, &param);
    if (UCS_PTR_IS_ERR(request)) {
        break_with(link, UCS_PTR_STATUS(request));
        return link->broken;
    }
    slot->request = request; /* NULL: done */
    link->is_dirty = 1;
    link->out.next = (link->out.next + 1) % link->ucx->config.n_messages;
    return KVP_OK;
}

/* What has arrived is given even when the link is broken by now. */
static kvp_status take(void *context, const void **out_bytes, size_t *out_n_bytes)
{
    kvp_ucx_link *link = context;
    const struct slot *slot = &link->in.slots[link->in.next];
    if (slot->request)
        slot = next_slot(link, &link->in);
    else if (slot->n_bytes == 0)
        slot = NULL; /* UCX refused it */
    if (!slot)
        return link->broken != KVP_OK ? link->broken : KVP_E_AGAIN;
    *out_bytes = slot->bytes;
    *out_n_bytes = slot->n_bytes;
    return KVP_OK;
}

static void give_back(void *context)
{
    kvp_ucx_link *link = context;
    struct slot *slot = &link->in.slots[link->in.next];
    slot->n_bytes = 0;
    await(link, slot);
    link->in.next = (link->in.next + 1) % link->ucx->config.n_messages;
}

static int is_card(const uint8_t *card, size_t n_bytes)
{
    return n_bytes > CARD_BYTES && n_bytes <= KVP_UCX_CARD_MAX &&
           memcmp(card, MAGIC, sizeof MAGIC) == 0 && load(card + 8, 4) == n_bytes &&
           load(card + 24, 8) == checksum_of(card, n_bytes);
}

static kvp_status connect_end(kvp_ucx_link *link, const void *card, size_t n_bytes,
                              kvp_link *out_end)
{
    const uint8_t *bytes = card;
    if (!link || !card || !out_end)
        return KVP_E_ARG;
    if (link->is_closed || link->endpoint)
        return KVP_E_STATE;
    if (!is_card(bytes, n_bytes) || load(bytes + 12, 4) < KVP_LINK_MESSAGE_MIN)
        return KVP_E_FORMAT;
    if (bytes[4] != CARD_VERSION)
        return KVP_E_VERSION;
    const ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = (const ucp_address_t *)(const void *)(bytes + CARD_BYTES),
        .err_mode = link->ucx->config.peers == KVP_UCX_REPORTED ? UCP_ERR_HANDLING_MODE_PEER
                                                                : UCP_ERR_HANDLING_MODE_NONE,
        .err_handler = {.cb = on_error, .arg = link}};
    if (ucp_ep_create(link->ucx->worker, &params, &link->endpoint) != UCS_OK) {
        link->endpoint = NULL;
        return KVP_E_PEER;
    }
    link->is_dirty = 1; /* a flush waits until the peer is reached */
    link->peer_tag = load(bytes + 16, 8);
    if (link->max_message > load(bytes + 12, 4))
        link->max_message = load(bytes + 12, 4);
    for (uint32_t i = 0; i < link->ucx->config.n_messages; i++)
        await(link, &link->in.slots[i]);
    *out_end = (kvp_link){.struct_size = sizeof(kvp_link),
                          .max_message = link->max_message,
                          .context = link,
                          .lend = lend,
                          .post = post,
                          .take = take,
                          .give_back = give_back,
                          .progress = progress};
    return KVP_OK;
}

kvp_status kvp_ucx_connect_sized(kvp_ucx_link *link, const void *card, size_t n_bytes,
                                 kvp_link *out_end, size_t end_size)
{
    kvp_link full;
    if (kvpi_sized_bad(out_end, end_size)) {
        return KVP_E_ARG;
    }
    const kvp_status status = connect_end(link, card, n_bytes, out_end == NULL ? NULL : &full);
    if (status == KVP_OK) {
        kvpi_sized_init(out_end, end_size, &full, sizeof(full));
    }
    return status;
}

kvp_status kvp_ucx_flush(kvp_ucx_link *link)
{
    const ucp_request_param_t param = {0};
    if (!link)
        return KVP_E_ARG;
    if (link->is_closed || !link->endpoint)
        return KVP_E_STATE;
    progress(link);
    if (link->broken != KVP_OK)
        return link->broken;
    if (link->flush && !is_done(link->flush))
        return KVP_E_AGAIN;
    if (link->flush) {
        const ucs_status_t status = ucp_request_check_status(link->flush);
        ucp_request_free(link->flush);
        link->flush = NULL;
        if (status != UCS_OK)
            break_with(link, status);
    } else if (link->is_dirty) {
        void *request = ucp_ep_flush_nbx(link->endpoint, &param);
        if (UCS_PTR_IS_ERR(request))
            break_with(link, UCS_PTR_STATUS(request));
        link->is_dirty = 0;
        link->flush = UCS_PTR_IS_PTR(request) ? request : NULL;
    }
    if (link->broken != KVP_OK)
        return link->broken;
    return link->flush || link->is_dirty ? KVP_E_AGAIN : KVP_OK;
}
