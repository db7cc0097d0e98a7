/* Any bytes as worker messages. The first byte chooses the mirror's sizes; the rest is a stream of
 * pieces (length in two bytes, then so many bytes). Each piece is given to the mirror twice: as it
 * is, and as the body of a message whose head and checksum are right, so that the body itself is
 * read. Nothing may crash; what is refused changes nothing; what is taken leaves sound rows. */
#include <stdlib.h>
#include <string.h>

#include <kvpager/states.h>
#include <kvpager/wire.h>

#include "wire/wire_bytes.h"

#include "require.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_PIECE = 4096 };

static void check_write_slots(const kvp_wire_seq *seq, const kvp_wire_config *config)
{
    require(seq->n_write_slots <= KVP_STATE_RING_MAX);
    require((seq->n_write_slots == 0) == (seq->write_slot == 0));
    require(seq->n_write_slots <= 1 || seq->n_write_slots <= seq->n_tokens - seq->computed_tokens);
    for (uint32_t i = 0; i < seq->n_write_slots; i++) {
        const int32_t slot = seq->write_slots[i];
        require(slot > 0 && (uint32_t)slot < config->state_slots);
        for (uint32_t k = 0; k < i; k++)
            require(seq->write_slots[k] != slot);
    }
    require(seq->n_write_slots == 0 ||
            (uint32_t)seq->write_slots[seq->n_write_slots - 1] == seq->write_slot);
}

static uint32_t block_tokens(const kvp_wire_config *config, uint32_t group)
{
    return config->group_tokens[group] > 0 ? config->group_tokens[group] : config->block_tokens;
}

static void check_rows(const kvp_wire_seq *seq, const kvp_wire_config *config)
{
    require(seq->row_tokens >= (uint64_t)seq->n_tokens + seq->tree_tokens);
    for (uint32_t group = 0; group < config->n_groups; group++) {
        const uint64_t n = kvp_blocks_for_tokens(block_tokens(config, group), seq->row_tokens);
        const int32_t *row = seq->row + (size_t)group * config->max_row_blocks;
        require(n <= config->max_row_blocks && (group > 0 || n == seq->n_blocks));
        for (uint32_t i = 0; i < n; i++)
            require(row[i] >= 0 && (uint32_t)row[i] < config->n_blocks);
        require(seq->windows[group].recent_tokens > 0 || seq->windows[group].sink_tokens == 0);
    }
}

static void check_state(const kvp_wire_mirror *mirror, const kvp_wire_config *config)
{
    kvp_wire_mirror_state state;
    uint32_t n_seqs = 0;
    require(kvp_wire_mirror_info_get(mirror, &state) == KVP_OK);
    for (uint32_t id = 0; id < config->max_seqs; id++) {
        kvp_wire_seq seq;
        require(kvp_wire_mirror_seq(mirror, id, &seq) == KVP_OK);
        n_seqs += seq.status != 0;
        require(seq.status != 0 || (seq.n_tokens == 0 && seq.n_blocks == 0));
        require(seq.known_tokens <= seq.n_tokens && seq.computed_tokens <= seq.n_tokens);
        check_rows(&seq, config);
        require(seq.read_slot == 0 || seq.read_slot < config->state_slots);
        require(seq.write_slot == 0 || seq.write_slot < config->state_slots);
        require(seq.write_slot != 0 || seq.step_tokens == 0 || config->state_slots == 0);
        check_write_slots(&seq, config);
        require(seq.tree_tokens <= config->max_tree_tokens);
        for (uint32_t i = 0; i < seq.tree_tokens; i++)
            require(seq.node_tokens[i] >= 0 && seq.node_parents[i] >= -1 &&
                    seq.node_parents[i] < (int32_t)i);
    }
    require(n_seqs == state.n_seqs);
}

static void check_news(const kvp_wire_news *news, const kvp_wire_config *config)
{
    require(news->n_items <= config->max_seqs && news->n_closed <= config->max_seqs);
    require(news->n_copies <= config->max_copies && news->n_moves <= config->max_moves);
    for (uint32_t i = 0; i < news->n_copies; i++) {
        const kvp_copy *copy = &news->copies[i];
        const int of_state = copy->group == config->n_groups;
        const uint32_t n_ids[] = {of_state ? config->state_slots : config->n_blocks,
                                  of_state ? config->host_state_slots : config->host_blocks};
        require(copy->group <= config->n_groups && copy->src_tier <= 1 && copy->dst_tier <= 1);
        require(copy->src_block >= 0 && (uint32_t)copy->src_block < n_ids[copy->src_tier] &&
                copy->dst_block >= 0 && (uint32_t)copy->dst_block < n_ids[copy->dst_tier]);
        require(copy->n_tokens >= 1 &&
                copy->n_tokens <= (of_state ? 1 : block_tokens(config, copy->group)));
    }
    for (uint32_t i = 0; i < news->n_moves * config->n_groups; i++) {
        const int64_t S = block_tokens(config, i / news->n_moves);
        const kvp_slot_move *move = &news->moves[i];
        require(move->src >= S && move->src < S * config->n_blocks && move->dst >= S &&
                move->dst < S * config->n_blocks);
    }
    for (uint32_t i = 0; i < news->n_items; i++) {
        require(i == 0 || news->items[i].worker_id > news->items[i - 1].worker_id);
        for (uint32_t k = 0; k < news->items[i].n_values; k++)
            require(news->items[i].values[k] >= 0);
    }
}

static void give(kvp_wire_mirror *mirror, const kvp_wire_config *config, const uint8_t *bytes,
                 size_t n_bytes)
{
    kvp_wire_news news;
    uint64_t digest = kvp_wire_mirror_digest(mirror);
    uint8_t *exact = malloc(n_bytes ? n_bytes : 1);
    require(exact != NULL);
    if (n_bytes > 0)
        memcpy(exact, bytes, n_bytes);
    if (kvp_wire_mirror_apply(mirror, exact, n_bytes, &news) == KVP_OK) {
        check_news(&news, config);
        check_state(mirror, config);
    } else {
        require(kvp_wire_mirror_digest(mirror) == digest);
    }
    free(exact);
}

/* Blocks of 4, 6 and 2 tokens; 4 alone would be another form of one size. */
static const uint8_t sizes[] = {4, 6, 2};

/* The mirror's next message with this body; an odd first byte makes it a full one, the next two
 * bits are its parts. */
static size_t wrap(const kvp_wire_mirror *mirror, const kvp_wire_config *config,
                   const uint8_t *body, size_t n_body, uint8_t *message)
{
    kvp_wire_mirror_state state;
    int full = n_body > 0 && (body[0] & 1) != 0;
    const int has_sizes = config->group_tokens[1] > 0;
    const size_t at = KVP_WIRE_HEAD_BYTES + (has_sizes ? sizeof sizes : 0);
    const size_t n_bytes = at + (n_body > 0 ? n_body - 1 : 0);
    require(kvp_wire_mirror_info_get(mirror, &state) == KVP_OK);
    full |= state.epoch == 0;
    memset(message, 0, KVP_WIRE_HEAD_BYTES);
    memcpy(message, KVPI_WIRE_MAGIC, 4);
    message[KVPI_WIRE_AT_VERSION] = KVPI_WIRE_VERSION;
    message[KVPI_WIRE_AT_KIND] = full ? KVPI_WIRE_FULL_STATE : KVPI_WIRE_STEP;
    message[KVPI_WIRE_AT_GROUPS] = (uint8_t)config->n_groups;
    message[KVPI_WIRE_AT_PARTS] =
        (uint8_t)((n_body > 0 ? body[0] >> 1 & 3 : 0) | (has_sizes ? KVPI_WIRE_SIZES : 0));
    kvpi_bytes_store(message + KVPI_WIRE_AT_LENGTH, n_bytes, 4);
    kvpi_bytes_store(message + KVPI_WIRE_AT_BLOCK_TOKENS, has_sizes ? 2 : config->block_tokens, 4);
    if (has_sizes)
        memcpy(message + KVP_WIRE_HEAD_BYTES, sizes, sizeof sizes);
    kvpi_bytes_store(message + KVPI_WIRE_AT_EPOCH, state.epoch ? state.epoch : 1, 8);
    kvpi_bytes_store(message + KVPI_WIRE_AT_NUMBER, state.number + 1, 8);
    if (n_body > 1)
        memcpy(message + at, body + 1, n_body - 1);
    kvpi_bytes_store(message + KVPI_WIRE_AT_CHECKSUM, kvpi_wire_checksum(message, n_bytes), 8);
    return n_bytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t message[KVP_WIRE_HEAD_BYTES + sizeof sizes + MAX_PIECE];
    kvp_wire_config config;
    kvp_wire_mirror *mirror;
    if (size == 0)
        return 0;
    kvp_wire_config_init(&config);
    config.block_tokens = data[0] & 1 ? 4 : 1;
    config.max_seqs = data[0] & 2 ? 12 : 3;
    config.max_row_blocks = data[0] & 4 ? 24 : 2;
    config.max_step_tokens = data[0] & 8 ? 1152 : 5;
    config.max_copies = data[0] & 16 ? 76 : 1;
    config.n_blocks = data[0] & 32 ? 181 : 4;
    config.n_groups = data[0] & 64 ? 3 : 1;
    config.max_tree_tokens = data[0] & 128 ? 16 : 0;
    config.max_moves = data[0] & 128 ? 144 : 0;
    if ((data[0] & 192) == 64) { /* groups without trees: with recurrent state */
        config.host_blocks = 121;
        config.state_slots = 30;
        config.host_state_slots = 28;
    }
    if ((data[0] & 77) == 69) { /* three groups, blocks of 4, long rows, few values */
        config.group_tokens[1] = sizes[1];
        config.group_tokens[2] = sizes[2];
        config.max_row_blocks = 48;
        config.max_step_tokens = 1152;
    }
    require(kvp_wire_mirror_create(&config, NULL, 0, &mirror) == KVP_OK);
    for (size_t at = 1; size - at >= 2;) {
        size_t n = (size_t)kvpi_bytes_load(data + at, 2) % MAX_PIECE;
        at += 2;
        if (n > size - at)
            n = size - at;
        give(mirror, &config, data + at, n);
        give(mirror, &config, message, wrap(mirror, &config, data + at, n, message));
        at += n;
    }
    kvp_wire_mirror_destroy(mirror);
    return 0;
}
