/* fingerprint: everything that KV depends on besides tokens, keys and namespace, as one digest.
 *
 *   SHA-256( "kvpagerF", version u32, then for each field: number u32, bytes u32, bytes )
 *
 * Every field says how long it is, so no two inputs give the same bytes. A new field gets a new
 * number at the end and a new version: a format never changes silently. docs/STORES.md has the
 * table. */
#include "store/identity/digest.h"

#include <string.h>

enum { FINGERPRINT_VERSION = 1, TEXT_MAX = 255 };

static const char STATES_TAG[8] = {'k', 'v', 'p', 'a', 'g', 'e', 'r', 'T'};
static const char TAG[8] = {'k', 'v', 'p', 'a', 'g', 'e', 'r', 'F'};

enum {
    FIELD_WEIGHTS = 1,
    FIELD_QUANTISATION = 2,
    FIELD_COMPUTE_TYPE = 3,
    FIELD_ROPE = 4,
    FIELD_TYPE = 5,
    FIELD_SCALES = 6,
    FIELD_K_SIZE = 7,
    FIELD_V_SIZE = 8,
    FIELD_MODEL_LAYERS = 9,
    FIELD_MODEL_HEADS = 10,
    FIELD_SLICE = 11,
    FIELD_BLOCK_TOKENS = 12,
    FIELD_UNIT_TOKENS = 13,
    FIELD_GROUPS = 14,
    FIELD_DRAFT = 15,
    FIELD_ORDER = 16,
    FIELD_GROUP_TOKENS = 17 /* only if a group has not block_tokens */
};

void kvp_fingerprint_input_init(kvp_fingerprint_input *input)
{
    if (!input)
        return;
    *input = (kvp_fingerprint_input){
        .struct_size = sizeof *input,
        .quantisation = "",
        .compute_type = "",
        .n_groups = 1,
        .order = KVP_ORDER_CPU,
    };
}

/* --------------------------------------------------------------------------------------- checks */

static int is_text(const char *text)
{
    return text && strlen(text) <= TEXT_MAX;
}

static int is_bytes(const void *bytes, uint32_t n_bytes)
{
    return n_bytes <= KVP_FINGERPRINT_BYTES_MAX && (bytes || n_bytes == 0);
}

static int is_zero(const kvp_digest *digest)
{
    static const kvp_digest zero;
    return memcmp(digest->bytes, zero.bytes, sizeof zero.bytes) == 0;
}

static int range_within(uint32_t first, uint32_t n, uint32_t whole)
{
    return n > 0 && first < whole && n <= whole - first;
}

static int are_groups(const kvp_fingerprint_input *input)
{
    if (input->n_groups == 0 || input->n_groups > KVP_GROUPS_MAX)
        return 0;
    for (uint32_t i = 0; i < input->n_groups; i++) {
        const kvp_group *group = &input->groups[i];
        if (group->recent_tokens == 0 && group->sink_tokens > 0)
            return 0;
    }
    return 1;
}

/* S of a group. */
static uint32_t tokens_of(const kvp_fingerprint_input *input, uint32_t group)
{
    const uint32_t S = input->groups[group].block_tokens;
    return S == 0 ? input->block_tokens : S;
}

static int are_sizes(const kvp_fingerprint_input *input)
{
    for (uint32_t i = 0; i < input->n_groups; i++)
        if (tokens_of(input, i) > KVP_BLOCK_TOKENS_MAX ||
            tokens_of(input, i) % input->unit_tokens != 0)
            return 0;
    return 1;
}

/* Names the first field that is wrong; NULL: none is. */
static const char *find_wrong(const kvp_fingerprint_input *input)
{
    if (input->struct_size != sizeof *input)
        return "struct_size is not that of this version: use kvp_fingerprint_input_init";
    if (is_zero(&input->weights))
        return "weights is zero: give the SHA-256 of the model's weights";
    if (!is_text(input->quantisation))
        return "quantisation is NULL or longer than 255 bytes";
    if (!is_text(input->compute_type) || !*input->compute_type)
        return "compute_type is NULL, empty or longer than 255 bytes";
    if (!is_bytes(input->rope, input->rope_bytes))
        return "rope is NULL, or rope_bytes exceeds KVP_FINGERPRINT_BYTES_MAX";
    if (!is_bytes(input->draft, input->draft_bytes))
        return "draft is NULL, or draft_bytes exceeds KVP_FINGERPRINT_BYTES_MAX";
    if (kvp_type_bytes(input->type) == 0)
        return "type is none of KVP_F32 ... KVP_E4M3";
    if (input->k_size == 0 || input->k_size > KVP_HEAD_SIZE_MAX)
        return "k_size is not 1..KVP_HEAD_SIZE_MAX";
    if (input->v_size > KVP_HEAD_SIZE_MAX)
        return "v_size is not 0..KVP_HEAD_SIZE_MAX";
    if (input->model_layers == 0 || input->model_layers > KVP_LAYERS_MAX)
        return "model_layers is not 1..KVP_LAYERS_MAX";
    if (input->model_heads == 0 || input->model_heads > KVP_HEADS_MAX)
        return "model_heads is not 1..KVP_HEADS_MAX";
    if (!range_within(input->slice.first_layer, input->slice.n_layers, input->model_layers))
        return "slice is empty or outside the model's layers";
    if (!range_within(input->slice.first_head, input->slice.n_heads, input->model_heads))
        return "slice is empty or outside the model's heads";
    if (input->block_tokens == 0 || input->block_tokens > KVP_BLOCK_TOKENS_MAX)
        return "block_tokens is not 1..KVP_BLOCK_TOKENS_MAX";
    if (input->unit_tokens == 0 || input->block_tokens % input->unit_tokens != 0)
        return "unit_tokens does not divide block_tokens";
    if (!are_groups(input))
        return "n_groups is not 1..KVP_GROUPS_MAX, or a group has sinks and no window";
    if (!are_sizes(input))
        return "block_tokens of a group is not 0, or a multiple of unit_tokens up to "
               "KVP_BLOCK_TOKENS_MAX";
    if (!is_text(input->order) || !*input->order)
        return "order is NULL, empty or longer than 255 bytes";
    return NULL;
}

/* --------------------------------------------------------------------------------------- fields */

static void add_bytes(struct kvpi_sha *sha, uint32_t field, const void *bytes, size_t n_bytes)
{
    kvpi_digest_add32(sha, field);
    kvpi_digest_add32(sha, (uint32_t)n_bytes);
    kvpi_sha_add(sha, bytes, n_bytes);
}

static void add_text(struct kvpi_sha *sha, uint32_t field, const char *text)
{
    add_bytes(sha, field, text, strlen(text));
}

static void add_number(struct kvpi_sha *sha, uint32_t field, uint32_t value)
{
    kvpi_digest_add32(sha, field);
    kvpi_digest_add32(sha, 4);
    kvpi_digest_add32(sha, value);
}

static void add_slice(struct kvpi_sha *sha, const kvp_slice *slice)
{
    kvpi_digest_add32(sha, FIELD_SLICE);
    kvpi_digest_add32(sha, 16);
    kvpi_digest_add_slice(sha, slice);
}

static void add_groups(struct kvpi_sha *sha, const kvp_fingerprint_input *input)
{
    kvpi_digest_add32(sha, FIELD_GROUPS);
    kvpi_digest_add32(sha, 8 * input->n_groups);
    for (uint32_t i = 0; i < input->n_groups; i++) {
        kvpi_digest_add32(sha, input->groups[i].sink_tokens);
        kvpi_digest_add32(sha, input->groups[i].recent_tokens);
    }
}

/* Models whose groups have blocks of block_tokens have the fingerprints that they always had. */
static void add_sizes(struct kvpi_sha *sha, const kvp_fingerprint_input *input)
{
    uint32_t n_others = 0;
    for (uint32_t i = 0; i < input->n_groups; i++)
        n_others += tokens_of(input, i) != input->block_tokens;
    if (n_others == 0)
        return;
    kvpi_digest_add32(sha, FIELD_GROUP_TOKENS);
    kvpi_digest_add32(sha, 4 * input->n_groups);
    for (uint32_t i = 0; i < input->n_groups; i++)
        kvpi_digest_add32(sha, tokens_of(input, i));
}

kvp_status kvp_fingerprint_make(kvp_digester *digester, const kvp_fingerprint_input *input,
                                kvp_digest *out_fingerprint, const char **out_why)
{
    const char *wrong = digester && input && out_fingerprint ? NULL : "a pointer is NULL";
    if (!wrong)
        wrong = find_wrong(input);
    if (out_why)
        *out_why = wrong ? wrong : "";
    if (wrong)
        return KVP_E_ARG;
    struct kvpi_sha *sha = &digester->sha;
    kvpi_sha_begin(sha);
    kvpi_sha_add(sha, TAG, sizeof TAG);
    kvpi_digest_add32(sha, FINGERPRINT_VERSION);
    add_bytes(sha, FIELD_WEIGHTS, input->weights.bytes, sizeof input->weights.bytes);
    add_text(sha, FIELD_QUANTISATION, input->quantisation);
    add_text(sha, FIELD_COMPUTE_TYPE, input->compute_type);
    add_bytes(sha, FIELD_ROPE, input->rope, input->rope_bytes);
    add_number(sha, FIELD_TYPE, input->type);
    add_number(sha, FIELD_SCALES, input->scales);
    add_number(sha, FIELD_K_SIZE, input->k_size);
    add_number(sha, FIELD_V_SIZE, input->v_size);
    add_number(sha, FIELD_MODEL_LAYERS, input->model_layers);
    add_number(sha, FIELD_MODEL_HEADS, input->model_heads);
    add_slice(sha, &input->slice);
    add_number(sha, FIELD_BLOCK_TOKENS, input->block_tokens);
    add_number(sha, FIELD_UNIT_TOKENS, input->unit_tokens);
    add_groups(sha, input);
    add_bytes(sha, FIELD_DRAFT, input->draft, input->draft_bytes);
    add_text(sha, FIELD_ORDER, input->order);
    add_sizes(sha, input);
    return kvpi_sha_end(sha, out_fingerprint);
}

kvp_status kvp_fingerprint_states(kvp_digester *digester, const kvp_digest *fingerprint,
                                  const void *states, uint32_t states_bytes,
                                  kvp_digest *out_fingerprint)
{
    if (!digester || !fingerprint || !out_fingerprint || is_zero(fingerprint) || !states ||
        states_bytes == 0 || states_bytes > KVP_FINGERPRINT_BYTES_MAX)
        return KVP_E_ARG;
    struct kvpi_sha *sha = &digester->sha;
    kvpi_sha_begin(sha);
    kvpi_sha_add(sha, STATES_TAG, sizeof STATES_TAG);
    kvpi_sha_add(sha, fingerprint->bytes, sizeof fingerprint->bytes);
    kvpi_digest_add32(sha, states_bytes);
    kvpi_sha_add(sha, states, states_bytes);
    return kvpi_sha_end(sha, out_fingerprint);
}
