/* out: see out.h. msgpack's packer writes into the batch's memory; the room was measured before. */
#include "publish/out.h"

#include <msgpack/pack.h>
#include <stdlib.h>
#include <string.h>

enum {
    EVENT_TOKENS = 4096, /* in an event, unless a unit has more */
    RUN_MAX = 128,
    HASH_BYTES = 9,
    TOKEN_BYTES = 5,
    NAME_BYTES = 1024, /* names of fields, of the medium and of an adapter */
    BATCH_BYTES = 65536,
    RANK_BYTES = 5
};

size_t kvpi_out_measure(struct kvpi_out_form *form)
{
    const uint32_t fit = EVENT_TOKENS / form->unit_tokens;
    form->run_units = fit == 0 ? 1 : fit < RUN_MAX ? fit : RUN_MAX;
    form->event_bytes = NAME_BYTES + (size_t)form->run_units *
                                         (HASH_BYTES + TOKEN_BYTES * (size_t)form->unit_tokens);
    const size_t least = 4 * form->event_bytes;
    return (least > BATCH_BYTES ? least : BATCH_BYTES) + KVPI_OUT_HEAD + RANK_BYTES;
}

kvp_status kvpi_out_open(struct kvpi_out *out, const struct kvpi_out_form *form, size_t capacity)
{
    memset(out, 0, sizeof(*out));
    out->form = form;
    out->capacity = capacity;
    out->bytes = malloc(capacity);
    out->run = calloc(form->run_units, sizeof(*out->run));
    out->run_tokens = calloc((size_t)form->run_units * form->unit_tokens, sizeof(int32_t));
    if (out->bytes == NULL || out->run == NULL || out->run_tokens == NULL) {
        kvpi_out_close(out);
        return KVP_E_NO_MEMORY;
    }
    kvpi_out_begin(out);
    return KVP_OK;
}

void kvpi_out_close(struct kvpi_out *out)
{
    free(out->bytes);
    free(out->run);
    free(out->run_tokens);
    memset(out, 0, sizeof(*out));
}

void kvpi_out_begin(struct kvpi_out *out)
{
    out->n = KVPI_OUT_HEAD;
    out->n_events = 0;
    out->n_run = 0;
}

int kvpi_out_is_empty(const struct kvpi_out *out)
{
    return out->n_events == 0 && out->n_run == 0;
}

int kvpi_out_is_full(const struct kvpi_out *out)
{
    return out->n + 2 * out->form->event_bytes + RANK_BYTES > out->capacity;
}

/* ------------------------------------------------------------------------------------- encoding */

static int pack_bytes(void *data, const char *bytes, size_t n)
{
    struct kvpi_out *out = data;
    memcpy(out->bytes + out->n, bytes, n);
    out->n += n;
    return 0;
}

static void pack_text(msgpack_packer *pack, const char *text)
{
    if (text == NULL) {
        (void)msgpack_pack_nil(pack);
    } else {
        (void)msgpack_pack_str_with_body(pack, text, strlen(text));
    }
}

/* A field: its name in front, unless fields go by their place. */
static void pack_name(msgpack_packer *pack, const struct kvpi_out *out, const char *name)
{
    if (out->form->form == KVP_PUBLISH_MAPS) {
        pack_text(pack, name);
    }
}

/* The type of an event with n_fields behind it. */
static void pack_type(msgpack_packer *pack, struct kvpi_out *out, const char *type, size_t n_fields)
{
    if (out->form->form == KVP_PUBLISH_MAPS) {
        (void)msgpack_pack_map(pack, n_fields + 1);
        pack_text(pack, "type");
    } else {
        (void)msgpack_pack_array(pack, n_fields + 1);
    }
    pack_text(pack, type);
    out->n_events++;
}

static void pack_hashes(msgpack_packer *pack, const struct kvpi_out *out)
{
    pack_name(pack, out, "block_hashes");
    (void)msgpack_pack_array(pack, out->n_run);
    for (uint32_t i = 0; i < out->n_run; i++) {
        (void)msgpack_pack_uint64(pack, out->run[i]);
    }
}

static void pack_stored(msgpack_packer *pack, struct kvpi_out *out)
{
    const uint32_t U = out->form->unit_tokens;
    const size_t n_tokens = (size_t)out->n_run * U;
    pack_type(pack, out, "BlockStored", 7);
    pack_hashes(pack, out);
    pack_name(pack, out, "parent_block_hash");
    if (out->has_parent) {
        (void)msgpack_pack_uint64(pack, out->parent);
    } else {
        (void)msgpack_pack_nil(pack);
    }
    pack_name(pack, out, "token_ids");
    (void)msgpack_pack_array(pack, n_tokens);
    for (size_t i = 0; i < n_tokens; i++) {
        (void)msgpack_pack_int32(pack, out->run_tokens[i]);
    }
    pack_name(pack, out, "block_size");
    (void)msgpack_pack_uint32(pack, U);
    pack_name(pack, out, "lora_id");
    (void)msgpack_pack_nil(pack);
    pack_name(pack, out, "medium");
    pack_text(pack, out->form->media[out->tier]);
    pack_name(pack, out, "lora_name");
    pack_text(pack, out->lora);
}

static void pack_removed(msgpack_packer *pack, struct kvpi_out *out)
{
    pack_type(pack, out, "BlockRemoved", 2);
    pack_hashes(pack, out);
    pack_name(pack, out, "medium");
    pack_text(pack, out->form->media[out->tier]);
}

/* Encode the event that is open. */
static void end_run(struct kvpi_out *out)
{
    msgpack_packer pack;
    if (out->n_run == 0) {
        return;
    }
    msgpack_packer_init(&pack, out, pack_bytes);
    if (out->kind == KVP_EVENT_STORED) {
        pack_stored(&pack, out);
    } else {
        pack_removed(&pack, out);
    }
    out->n_run = 0;
}

static int continues(const struct kvpi_out *out, uint32_t kind, uint32_t tier)
{
    return out->n_run > 0 && out->n_run < out->form->run_units && out->kind == kind &&
           out->tier == tier;
}

/* --------------------------------------------------------------------------------------- events */

void kvpi_out_stored(struct kvpi_out *out, const struct kvpi_units *set, uint32_t slot,
                     uint32_t tier, const char *lora)
{
    const uint32_t U = out->form->unit_tokens;
    const struct kvpi_unit *unit = kvpi_unit_at(set, slot);
    const struct kvpi_unit *before = kvpi_unit_at(set, unit->before);
    if (!continues(out, KVP_EVENT_STORED, tier) || out->last != unit->before || out->lora != lora) {
        end_run(out);
        out->kind = KVP_EVENT_STORED;
        out->tier = tier;
        out->has_parent = !(before->flags & KVPI_UNIT_ROOT);
        out->parent = before->wire;
        out->lora = lora;
    }
    memcpy(out->run_tokens + (size_t)out->n_run * U, kvpi_unit_tokens(set, slot),
           U * sizeof(int32_t));
    out->run[out->n_run++] = unit->wire;
    out->last = slot;
}

void kvpi_out_removed(struct kvpi_out *out, uint64_t wire, uint32_t tier)
{
    if (!continues(out, KVP_EVENT_REMOVED, tier)) {
        end_run(out);
        out->kind = KVP_EVENT_REMOVED;
        out->tier = tier;
    }
    out->run[out->n_run++] = wire;
}

void kvpi_out_cleared(struct kvpi_out *out)
{
    msgpack_packer pack;
    end_run(out);
    msgpack_packer_init(&pack, out, pack_bytes);
    pack_type(&pack, out, "AllBlocksCleared", 0);
}

const uint8_t *kvpi_out_end(struct kvpi_out *out, uint64_t now_ns, size_t *out_bytes)
{
    uint8_t head[KVPI_OUT_HEAD] = {0};
    struct kvpi_out at_head = {.bytes = head};
    msgpack_packer pack;
    end_run(out);
    msgpack_packer_init(&pack, out, pack_bytes);
    (void)msgpack_pack_int32(&pack, out->form->rank);
    msgpack_packer_init(&pack, &at_head, pack_bytes);
    (void)msgpack_pack_array(&pack, 3);
    (void)msgpack_pack_double(&pack, (double)now_ns / 1e9);
    (void)msgpack_pack_array(&pack, out->n_events);
    uint8_t *begin = out->bytes + KVPI_OUT_HEAD - at_head.n;
    memcpy(begin, head, at_head.n);
    *out_bytes = out->n - (size_t)(begin - out->bytes);
    return begin;
}
