/* rope: frequencies with their scalings, and the turn itself.
 *
 * The plain frequency of pair i is theta^(-2 i / n). The scalings stretch a model to more positions
 * than it was trained on, original_tokens:
 *
 *   linear   all frequencies / factor (position interpolation)
 *   llama3   by wavelength: short waves stay, long ones are divided by factor, between
 *            original / high_freq_factor and original / low_freq_factor a blend
 *   YaRN     by pair index: pairs that turn more than beta_fast times within original_tokens stay,
 *            those below beta_slow are divided by factor, between them a ramp; what is turned is
 *            also stretched by 0.1 ln(factor) + 1
 */
#include "attention/rope.h"

#include <math.h>

static const double two_pi = 6.283185307179586476925286766559;

/* ------------------------------------------------------------------------------------- validity */

static int is_positive(double value)
{
    return isfinite(value) && value > 0.0;
}

static uint32_t rotated_dims(const kvp_rope *rope, uint32_t dims)
{
    return rope->n_dims != 0 ? rope->n_dims : dims - rope->first_dim;
}

static int has_valid_scaling(const kvp_rope *rope)
{
    if (rope->scaling != KVP_ROPE_PLAIN && !is_positive(rope->factor))
        return 0;
    switch (rope->scaling) {
    case KVP_ROPE_PLAIN:
    case KVP_ROPE_LINEAR: return 1;
    case KVP_ROPE_LLAMA3:
        return rope->original_tokens > 0 && is_positive(rope->low_freq_factor) &&
               is_positive(rope->high_freq_factor) &&
               rope->low_freq_factor < rope->high_freq_factor;
    case KVP_ROPE_YARN:
        return rope->original_tokens > 0 && is_positive(rope->beta_slow) &&
               is_positive(rope->beta_fast) && rope->beta_slow <= rope->beta_fast &&
               rope->theta > 1.0;
    default: return 0;
    }
}

static int are_finite(const double *values, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (!isfinite(values[i]))
            return 0;
    }
    return 1;
}

int kvpi_rope_is_valid(const kvp_rope *rope, uint32_t dims)
{
    if (rope->struct_size != sizeof *rope || rope->mode > KVP_ROPE_AT_READ)
        return 0;
    if (rope->mode == KVP_ROPE_NONE)
        return 1;
    if (rope->pairing > KVP_ROPE_INTERLEAVED || rope->first_dim >= dims)
        return 0;
    const uint32_t n_dims = rotated_dims(rope, dims);
    if (n_dims % 2 != 0 || n_dims > dims - rope->first_dim)
        return 0;
    if (!isfinite(rope->magnitude) || rope->magnitude < 0.0)
        return 0;
    if (rope->frequencies != NULL) {
        return (uintptr_t)rope->frequencies % sizeof(double) == 0 &&
               are_finite(rope->frequencies, n_dims / 2);
    }
    return is_positive(rope->theta) && has_valid_scaling(rope);
}

/* ---------------------------------------------------------------------------------- frequencies */

uint32_t kvpi_rope_pairs(const kvp_rope *rope, uint32_t dims)
{
    return rope->mode == KVP_ROPE_NONE ? 0 : rotated_dims(rope, dims) / 2;
}

static double llama3_frequency(const kvp_rope *rope, double frequency)
{
    const double waves = rope->original_tokens * frequency / two_pi; /* within original_tokens */
    if (waves > rope->high_freq_factor)
        return frequency;
    if (waves < rope->low_freq_factor)
        return frequency / rope->factor;
    const double blend =
        (waves - rope->low_freq_factor) / (rope->high_freq_factor - rope->low_freq_factor);
    return (1.0 - blend) * frequency / rope->factor + blend * frequency;
}

/* The pair index, as a real number, that turns `turns` times within original_tokens. */
static double yarn_pair(const kvp_rope *rope, uint32_t n_dims, double turns)
{
    return n_dims * log(rope->original_tokens / (turns * two_pi)) / (2.0 * log(rope->theta));
}

/* Below low the pairs stay, from high on they are divided. */
static void yarn_range(const kvp_rope *rope, uint32_t n_dims, double *out_low, double *out_high)
{
    double low = yarn_pair(rope, n_dims, rope->beta_fast);
    double high = yarn_pair(rope, n_dims, rope->beta_slow);
    if (!rope->yarn_exact) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0.0);
    high = fmin(high, n_dims - 1.0);
    *out_low = low;
    *out_high = low < high ? high : low + 0.001; /* a step, as published, where there is no ramp */
}

static double yarn_frequency(const kvp_rope *rope, uint32_t n_dims, uint32_t pair, double frequency)
{
    double low, high;
    yarn_range(rope, n_dims, &low, &high);
    const double ramp = fmin(fmax((pair - low) / (high - low), 0.0), 1.0);
    return frequency / rope->factor * ramp + frequency * (1.0 - ramp);
}

static double frequency_of(const kvp_rope *rope, uint32_t n_dims, uint32_t pair)
{
    if (rope->frequencies != NULL)
        return rope->frequencies[pair];
    const double plain = pow(rope->theta, -2.0 * pair / n_dims);
    switch (rope->scaling) {
    case KVP_ROPE_LINEAR: return plain / rope->factor;
    case KVP_ROPE_LLAMA3: return llama3_frequency(rope, plain);
    case KVP_ROPE_YARN: return yarn_frequency(rope, n_dims, pair, plain);
    default: return plain;
    }
}

static double magnitude_of(const kvp_rope *rope)
{
    if (rope->magnitude > 0.0)
        return rope->magnitude;
    if (rope->frequencies == NULL && rope->scaling == KVP_ROPE_YARN && rope->factor > 1.0)
        return 0.1 * log(rope->factor) + 1.0;
    return 1.0;
}

void kvpi_rope_make(struct kvpi_rope *out, const kvp_rope *rope, uint32_t dims, double *frequencies)
{
    out->mode = rope->mode;
    out->is_interleaved = rope->pairing == KVP_ROPE_INTERLEAVED;
    out->first_dim = rope->first_dim;
    out->n_pairs = kvpi_rope_pairs(rope, dims);
    out->magnitude = magnitude_of(rope);
    out->frequencies = frequencies;
    for (uint32_t pair = 0; pair < out->n_pairs; pair++)
        frequencies[pair] = frequency_of(rope, 2 * out->n_pairs, pair);
}

/* ------------------------------------------------------------------------------------- the turn */

void kvpi_rope_turn(const struct kvpi_rope *rope, double position, double *vector)
{
    const uint32_t step = rope->is_interleaved ? 2 : 1;
    const uint32_t apart = rope->is_interleaved ? 1 : rope->n_pairs;
    for (uint32_t pair = 0; pair < rope->n_pairs; pair++) {
        double *x = vector + rope->first_dim + (size_t)pair * step;
        double *y = x + apart;
        const double angle = position * rope->frequencies[pair];
        const double c = cos(angle) * rope->magnitude, s = sin(angle) * rope->magnitude;
        const double turned = *x * c - *y * s;
        *y = *x * s + *y * c;
        *x = turned;
    }
}
