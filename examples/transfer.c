/* Disaggregated prefill: one side computes a prompt, the other decodes. Here both are in one
 * process, connected by a loopback. With kvp_shm_open or kvp_tcp_open they are two processes.
 *
 * The receiver has the first block cached, so only the rest is sent. Its blocks are larger and have
 * another layout. The sender sends each layer as soon as it is written.
 */
#include <kvpager/kvpager.h>
#include <kvpager/memory.h>
#include <kvpager/transfer.h>
#include <stdio.h>

enum { PROMPT = 20, LAYERS = 2, HEADS = 2, SIZE = 4 };

typedef struct side {
    kvp_cache *cache;
    kvp_memory *memory;
    kvp_ns ns;
    kvp_seq seq;
} side;

static const int32_t tokens[PROMPT] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10,
                                       11, 12, 13, 14, 15, 16, 17, 18, 19, 20};

static int open_side(side *s, uint32_t block_tokens, const char *order)
{
    kvp_config config;
    kvp_config_init(&config);
    config.block_tokens = block_tokens;
    config.n_blocks = 16;
    kvp_layout layout;
    kvp_layout_init(&layout);
    layout.type = KVP_BF16;
    layout.n_blocks = config.n_blocks;
    layout.block_tokens = block_tokens;
    layout.n_layers = LAYERS;
    layout.n_heads = HEADS;
    layout.k.size = layout.v.size = SIZE;
    return kvp_cache_create(&config, NULL, 0, &s->cache) == KVP_OK &&
           kvp_ns_open(s->cache, "model", 5, &s->ns) == KVP_OK &&
           kvp_layout_arrange(&layout, order, NULL) == KVP_OK &&
           kvp_memory_create(&layout, NULL, &s->memory) == KVP_OK;
}

static int open_prompt(side *s, uint32_t n_tokens)
{
    kvp_open_info info;
    const kvp_prompt prompt = {
        .struct_size = sizeof prompt, .tokens = tokens, .n_tokens = n_tokens};
    if (kvp_seq_open(s->cache, s->ns, &prompt, &s->seq, &info) != KVP_OK)
        return 0;
    printf("%u tokens, %u of them cached\n", n_tokens, info.cached_tokens);
    return 1;
}

/* Stands for a layer of the model: all elements of K and V of token t are t. */
static int compute(side *s, uint32_t l, uint32_t from, uint32_t to)
{
    kvp_layer layer;
    int64_t slots[PROMPT];
    if (kvp_memory_layer(s->memory, l, &layer) != KVP_OK ||
        kvp_seq_slots(s->cache, s->seq, 0, from, to - from, slots) != KVP_OK)
        return 0;
    for (uint32_t t = from; t < to; t++) {
        const float value = (float)tokens[t], kv[SIZE] = {value, value, value, value};
        for (uint32_t h = 0; h < HEADS; h++)
            if (kvp_layer_write(&layer, KVP_K, slots[t - from], h, kv) != KVP_OK ||
                kvp_layer_write(&layer, KVP_V, slots[t - from], h, kv) != KVP_OK)
                return 0;
    }
    return 1;
}

static int compute_all(side *s, uint32_t n_tokens)
{
    for (uint32_t l = 0; l < LAYERS; l++)
        if (!compute(s, l, 0, n_tokens))
            return 0;
    return kvp_seq_commit(s->cache, s->seq, n_tokens) == KVP_OK;
}

/* Compute the prompt in steps of 8 tokens; send each layer when it is written. */
static int prefill(side *s, kvp_sender *sender, uint64_t id)
{
    for (uint32_t from = 0; from < PROMPT; from += 8) {
        const uint32_t to = from + 8 < PROMPT ? from + 8 : PROMPT;
        for (uint32_t l = 0; l < LAYERS; l++)
            if (!compute(s, l, from, to) || kvp_sender_ready(sender, id, l, to) != KVP_OK)
                return 0;
        if (kvp_seq_commit(s->cache, s->seq, to) != KVP_OK ||
            kvp_sender_progress(sender, NULL) != KVP_OK)
            return 0;
    }
    return 1;
}

static int print_received(const side *s)
{
    const int32_t *row;
    uint32_t n_blocks;
    float k[PROMPT * HEADS * SIZE];
    if (kvp_seq_row(s->cache, s->seq, 0, &row, &n_blocks) != KVP_OK)
        return 0;
    const kvp_gather gather = {
        .row = row, .n_row = n_blocks, .layer = LAYERS - 1, .n_tokens = PROMPT};
    if (kvp_memory_gather(s->memory, &gather, k, NULL) != KVP_OK)
        return 0;
    printf("K of the last layer:");
    for (uint32_t t = 0; t < PROMPT; t++)
        printf(" %g", (double)k[(size_t)t * HEADS * SIZE]);
    printf("\n");
    return 1;
}

static int transfer(side *a, side *b, const kvp_link *ends)
{
    kvp_transfer_config config;
    kvp_sender *sender;
    kvp_receiver *receiver;
    uint32_t link_a, link_b;
    uint64_t id_a, id_b;
    uint8_t ticket[512];
    size_t n_bytes;
    kvp_transfer_info info;

    kvp_transfer_config_init(&config);
    config.model = "llama-8b";
    config.model_bytes = 8;
    config.cache = b->cache;
    config.memory = b->memory;
    const kvp_receive receive = {.struct_size = sizeof receive,
                                 .seq = b->seq,
                                 .end = KVP_END,
                                 .space = "model",
                                 .space_bytes = 5};
    if (kvp_receiver_create(&config, &receiver) != KVP_OK ||
        kvp_receiver_attach(receiver, &ends[1], &link_b) != KVP_OK ||
        kvp_receiver_reserve(receiver, &receive, ticket, sizeof ticket, &n_bytes, &id_b) != KVP_OK)
        return 0;

    config.cache = a->cache;
    config.memory = a->memory;
    if (kvp_sender_create(&config, &sender) != KVP_OK ||
        kvp_sender_attach(sender, &ends[0], &link_a) != KVP_OK)
        return 0;
    const kvp_send send = {.struct_size = sizeof send,
                           .seq = a->seq,
                           .ticket = ticket,
                           .ticket_bytes = n_bytes,
                           .link = link_a,
                           .space = "model",
                           .space_bytes = 5,
                           .ready_tokens = KVP_END};
    if (kvp_sender_mark(sender, &send, &id_a) != KVP_OK || !prefill(a, sender, id_a))
        return 0;

    if (kvp_receiver_progress(receiver, 0, NULL) != KVP_OK ||
        kvp_receiver_info_get(receiver, id_b, &info) != KVP_OK)
        return 0;
    printf("tokens %u to %u: %s, %u chunks, %u bytes\n", info.begin, info.end - 1,
           info.state == KVP_TRANSFER_COMPLETE ? "complete" : "not complete", (unsigned)info.chunks,
           (unsigned)info.bytes);
    if (info.state != KVP_TRANSFER_COMPLETE || kvp_seq_commit(b->cache, b->seq, info.end) != KVP_OK)
        return 0;
    kvp_sender_destroy(sender);
    kvp_receiver_destroy(receiver);
    return 1;
}

int main(void)
{
    side a, b;
    kvp_loopback *loopback;
    kvp_link ends[2];
    if (!open_side(&a, 4, KVP_ORDER_VLLM_NHD) || !open_side(&b, 8, KVP_ORDER_TENSORRT_LLM) ||
        kvp_loopback_create(4096, 16, &loopback, ends) != KVP_OK)
        return 1;
    printf("the receiver has computed a prompt before: ");
    if (!open_prompt(&b, 8) || !compute_all(&b, 8) || kvp_seq_close(b.cache, b.seq, NULL) != KVP_OK)
        return 1;
    printf("sender: ");
    if (!open_prompt(&a, PROMPT))
        return 1;
    printf("receiver: ");
    if (!open_prompt(&b, PROMPT) || !transfer(&a, &b, ends) || !print_received(&b))
        return 1;
    kvp_loopback_destroy(loopback);
    kvp_memory_destroy(a.memory);
    kvp_memory_destroy(b.memory);
    kvp_cache_destroy(a.cache);
    kvp_cache_destroy(b.cache);
    return 0;
}
