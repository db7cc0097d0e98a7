/* Owns the model of a step's time.
 *
 *   step   = overhead + copies + max(compute, memory)            no sequences: copies alone
 *
 *   compute = FLOPs / (peak x share x accelerators)
 *     FLOPs   2 x parameters of the layers that a token uses, for each token
 *           + 2 x parameters of the output matrix, for each position that is sampled
 *           + for each query and each key it sees, 2 x (width of K + width of V) x query heads
 *   memory  = bytes / (peak x share), on one accelerator
 *     bytes   weights, once: without the input embedding; of the experts those that the step's
 *             tokens are expected to use when each draws its own at random
 *           + KV of every sequence's context, once for each sequence, and of the new tokens
 *   copies  = KV bytes between host and device / bandwidth of the link
 *           + 2 x KV bytes from block to block / memory bandwidth
 *             (a block is of one layer group; one that is not full of layers is copied whole. A
 *             recurrent state counts as the tokens that have as many bytes)
 *
 * A sequence that computes tokens b .. b + n - 1 has n b + n (n + 1) / 2 pairs of query and key; a
 * window of R ends each query's keys at R, chunks of R begin them again at every R-th. Multi-head
 * latent attention is counted as it is computed: a single token on the latent vectors (widths rank
 * + rope and rank), more tokens on the full heads.
 *
 * With plain rates everything is a sum of counts x rates.
 *
 * Each product stands in a statement of its own, so that no compiler merges it with a sum: every
 * machine gets the same nanosecond.
 */
#include "tool/models/step_model.h"

#include <math.h>

#define NS_PER_SECOND 1e9
#define PS_PER_NS     1e3

/* ---------------------------------------------------------------------------------- building */

static kvpi_step_attention attention_of(const kvpi_model *model, const kvpi_size_group *group)
{
    const bool windowed = group->window_tokens > 0;
    const kvpi_models_kind *heads = kvpi_models_find_kind(model, KVPI_KEEPS_HEADS, windowed);
    const kvpi_models_kind *latent = kvpi_models_find_kind(model, KVPI_KEEPS_LATENT, windowed);
    double queries = 2.0 * model->q_heads * group->n_layers;
    double decode_width = 0, prompt_width = 0;
    if (latent != NULL) {
        decode_width = 2.0 * latent->latent + latent->rope;
        prompt_width = (double)model->latent.nope_dim + latent->rope + model->latent.v_dim;
    } else if (heads != NULL) {
        decode_width = prompt_width = (double)heads->k_dim + heads->v_dim;
    }
    return (kvpi_step_attention){.window_tokens = (double)group->window_tokens,
                                 .chunked = group->chunked,
                                 .token_bytes = (double)group->token_bytes,
                                 .decode_flops = queries * decode_width,
                                 .prompt_flops = queries * prompt_width};
}

static double missed_share(const kvpi_model *model)
{
    if (model->experts.n_experts == 0)
        return 0;
    return 1.0 - (double)model->experts.per_token / model->experts.n_experts;
}

kvpi_step_roofline kvpi_step_roofline_of(const kvpi_model *model, const kvpi_size_options *options,
                                         const kvpi_size *size, const kvpi_device *device,
                                         const kvpi_step_shares *shares)
{
    kvpi_models_count count = kvpi_models_count_parameters(model);
    kvpi_models_traffic traffic = kvpi_models_count_traffic(model, options->weights_dtype);
    const double counted = (double)kvpi_models_weights_bytes(model, options->weights_dtype);
    const double given = (double)options->weights_bytes;
    const double share = given > 0 ? given / counted : 1; /* of what was counted: --weights */
    double head = (double)model->mlp.hidden * model->mlp.vocab;
    double n = options->tensor_parallel;
    kvpi_step_roofline out = {
        .flops_per_second = device->flops * n * (double)shares->compute_milli / 1000,
        .bytes_per_second = device->bytes_per_second * (double)shares->bandwidth_milli / 1000,
        .host_bytes_per_second = (double)shares->host_bytes_per_second,
        .token_flops = 2.0 * ((double)count.active - head),
        .sampled_flops = 2.0 * head,
        .weights_bytes = (double)traffic.every_step * share / n,
        .expert_bytes = (double)traffic.experts * share / n,
        .missed_share = missed_share(model),
        .copied_bytes = (double)size->pool_block_bytes / (double)options->block_tokens,
        .n_attention = size->n_groups};
    for (uint32_t i = 0; i < size->n_groups; i++)
        out.attention[i] = attention_of(model, &size->groups[i]);
    return out;
}

/* ------------------------------------------------------------------------------------- a step */

/* What the sequences of a step add up to. Sums of products of whole numbers: exact up to 2^53. */
typedef struct work {
    double n_tokens;
    double n_sampled; /* positions, not samples */
    double flops;     /* of attention */
    double bytes;     /* of KV */
} work;

/* Query-key pairs of n queries, the first of which has `first` keys, at most `window` each. */
static double count_pairs(double first, double n, double window)
{
    double last = first + n - 1;
    if (window <= 0 || last <= window)
        return n * (first + last) / 2;
    if (first >= window)
        return n * window;
    double growing = window - first;
    return growing * (first + window - 1) / 2 + (n - growing) * window;
}

/* Query-key pairs of the queries at positions before `end`, which attend in chunks. */
static double chunk_pairs(double end, double chunk)
{
    double n_whole = floor(end / chunk), rest = fmod(end, chunk);
    double in_chunk = chunk * (chunk + 1) / 2, in_rest = rest * (rest + 1) / 2;
    double in_whole = n_whole * in_chunk;
    return in_whole + in_rest;
}

/* The pairs of a sequence's queries, and the keys that are read. */
static double count_chunked(const kvp_step_seq *seq, double chunk, double *keys)
{
    double begin = seq->begin, end = begin + seq->n_tokens;
    double before = fmod(begin, chunk);
    *keys = before + seq->n_tokens;
    return chunk_pairs(end, chunk) - chunk_pairs(begin, chunk);
}

/* The pairs of a sequence's queries in these layers, and the keys that are read. */
static double pairs_of(const kvpi_step_attention *attention, const kvp_step_seq *seq, double *keys)
{
    double n = seq->n_tokens, first = (double)seq->begin + 1;
    *keys = first + n - 1;
    return attention->chunked ? count_chunked(seq, attention->window_tokens, keys)
                              : count_pairs(first, n, attention->window_tokens);
}

static void add_attention(const kvpi_step_attention *attention, const kvp_step_seq *seq, work *sum)
{
    double n = seq->n_tokens, keys, pairs = pairs_of(attention, seq, &keys);
    double pair_flops = seq->n_tokens == 1 ? attention->decode_flops : attention->prompt_flops;
    double flops = pairs * pair_flops;
    if (attention->window_tokens > 0 && !attention->chunked &&
        keys > attention->window_tokens + n - 1)
        keys = attention->window_tokens + n - 1;
    double bytes = (keys + n) * attention->token_bytes;
    sum->flops += flops;
    sum->bytes += bytes;
}

static void add_roofline(const kvpi_step_roofline *r, const kvp_step *step, kvpi_step_time *time)
{
    work sum = {.n_tokens = step->n_tokens};
    for (uint32_t i = 0; i < step->n_seqs; i++) {
        sum.n_sampled += step->seqs[i].n_sampled > 0;
        for (uint32_t k = 0; k < r->n_attention; k++)
            add_attention(&r->attention[k], &step->seqs[i], &sum);
    }
    double in_layers = sum.n_tokens * r->token_flops;
    double in_output = sum.n_sampled * r->sampled_flops;
    double used_share = 1.0 - pow(r->missed_share, sum.n_tokens);
    double of_experts = r->expert_bytes * used_share;
    double flops = in_layers + in_output + sum.flops;
    double bytes = r->weights_bytes + of_experts + sum.bytes;
    time->compute_ns = flops / r->flops_per_second * NS_PER_SECOND;
    time->memory_ns = bytes / r->bytes_per_second * NS_PER_SECOND;
}

static double rates_ns(const kvpi_step_rates *rates, const kvp_step *step)
{
    double n_context = 0, n_prompt = step->n_tokens - step->n_decoding;
    for (uint32_t i = 0; i < step->n_seqs; i++)
        n_context += (double)step->seqs[i].begin + step->seqs[i].n_tokens;
    double decoded = (double)step->n_decoding * (double)rates->decode_token_ps;
    double prompt = n_prompt * (double)rates->prompt_token_ps;
    double context = n_context * (double)rates->context_token_ps;
    return (decoded + prompt + context) / PS_PER_NS;
}

static double copies_ns(const kvpi_step_model *model, const kvpi_step_copies *copies)
{
    const kvpi_step_roofline *r = &model->roofline;
    double host = (double)copies->host_tokens, device = (double)copies->device_tokens;
    double of_states = (double)copies->host_states * model->state_tokens;
    host += of_states;
    if (!model->is_roofline)
        return host * (double)model->rates.copy_token_ps / PS_PER_NS;
    double over_link = host * r->copied_bytes / r->host_bytes_per_second * NS_PER_SECOND;
    double in_memory = device * r->copied_bytes * 2 / r->bytes_per_second * NS_PER_SECOND;
    return over_link + in_memory;
}

kvpi_step_time kvpi_step_time_of(const kvpi_step_model *model, const kvp_step *step,
                                 const kvpi_step_copies *copies)
{
    kvpi_step_time time = {.copy_ns = copies_ns(model, copies)};
    double ns = time.copy_ns;
    if (step->n_seqs > 0)
        ns += (double)model->step_ns;
    if (step->n_seqs > 0 && model->is_roofline) {
        add_roofline(&model->roofline, step, &time);
        ns += time.compute_ns > time.memory_ns ? time.compute_ns : time.memory_ns;
    } else if (step->n_seqs > 0) {
        ns += rates_ns(&model->rates, step);
    }
    time.ns = ns < (double)KVPI_STEP_MAX_NS ? (uint64_t)(ns + 0.5) : KVPI_STEP_MAX_NS;
    return time;
}

double kvpi_step_prefill_ns(const kvpi_step_model *model, uint32_t begin, uint32_t end)
{
    const kvpi_step_roofline *r = &model->roofline;
    const kvp_step_seq piece = {.begin = begin, .n_tokens = end - begin};
    double n = piece.n_tokens, flops = n * r->token_flops, keys;
    if (begin >= end)
        return 0;
    if (!model->is_roofline)
        return n * (double)model->rates.prompt_token_ps / PS_PER_NS;
    for (uint32_t k = 0; k < r->n_attention; k++)
        flops += pairs_of(&r->attention[k], &piece, &keys) * r->attention[k].prompt_flops;
    return flops / r->flops_per_second * NS_PER_SECOND;
}

/* So slow a link costs the most that there is. */
static uint64_t whole_ps(double ns)
{
    double ps = ns * PS_PER_NS;
    return ps < (double)KVPI_STEP_MAX_PS ? (uint64_t)(ps + 0.5) : KVPI_STEP_MAX_PS;
}

kvpi_step_prices kvpi_step_prices_of(const kvpi_step_model *model, uint64_t block_tokens)
{
    const kvpi_step_roofline *r = &model->roofline;
    double there_and_back = 2.0 * (double)block_tokens;
    if (!model->is_roofline) {
        double state_ps = 2.0 * model->state_tokens * (double)model->rates.copy_token_ps;
        return (kvpi_step_prices){2 * block_tokens * model->rates.copy_token_ps,
                                  whole_ps(state_ps / PS_PER_NS), model->rates.prompt_token_ps};
    }
    double swap_ns = there_and_back * r->copied_bytes / r->host_bytes_per_second * NS_PER_SECOND;
    double token_ns = r->token_flops / r->flops_per_second * NS_PER_SECOND;
    return (kvpi_step_prices){whole_ps(swap_ns), 0, whole_ps(token_ns)};
}
