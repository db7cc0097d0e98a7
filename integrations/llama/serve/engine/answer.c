/* answer: what a step's tokens are for the client. */
#include "answer.h"

#include <stdlib.h>
#include <string.h>

enum { PIECE_BYTES = 1024 };

/* No memory for a piece: the client gets an answer that lacks one, so it gets none. */
static void give(kvpi_job *job, const kvpi_piece *piece, const char *text)
{
    if (kvpi_job_add(job, piece, text) != 0) {
        free(piece->logprobs);
        atomic_store(&job->is_cancelled, 1);
    }
}

static kvpi_logprob *measure(const kvpi_job *job, const float *logits, int32_t n_vocab,
                             int32_t token)
{
    if (job->sampling.n_logprobs < 0)
        return NULL;
    const uint32_t n_top = (uint32_t)job->sampling.n_logprobs;
    kvpi_logprob *logprobs = calloc(n_top + 1, sizeof *logprobs);
    if (logprobs != NULL)
        kvpi_logprobs(logits, n_vocab, token, n_top, logprobs);
    return logprobs;
}

int kvpi_answer_sample(kvpi_job *job, uint32_t number, const float *logits,
                       const struct llama_vocab *vocab, llama_token_data *room, int32_t *out_token)
{
    char bytes[PIECE_BYTES];
    kvpi_sample *sample = &job->samples[number];
    const int32_t n_vocab = llama_vocab_n_tokens(vocab);
    const int32_t token = kvpi_sampler_pick(&sample->sampler, logits, n_vocab, room);
    *out_token = token;
    sample->n_tokens++;
    const int is_end = llama_vocab_is_eog(vocab, token) && !job->sampling.ignore_eos;
    if (!is_end) {
        const int32_t n = llama_token_to_piece(vocab, token, bytes, PIECE_BYTES, 0, false);
        if (n > 0 && kvpi_text_put(&sample->text, bytes, (size_t)n, &job->stops) != 0)
            atomic_store(&job->is_cancelled, 1);
    }
    const size_t ready = kvpi_text_ready(&sample->text, &job->stops);
    const kvpi_piece piece = {.sample = number,
                              .token = token,
                              .n_bytes = ready,
                              .logprobs = is_end ? NULL : measure(job, logits, n_vocab, token)};
    give(job, &piece, sample->text.bytes);
    kvpi_text_drop(&sample->text, ready);
    if (!is_end && !sample->text.is_stopped)
        return 0;
    kvpi_answer_end(job, number, KVPI_FINISH_STOP);
    return 1;
}

static void give_end(kvpi_job *job, uint32_t number)
{
    kvpi_sample *sample = &job->samples[number];
    const kvpi_piece piece = {
        .sample = number, .finish = sample->finish, .token = -1, .n_bytes = sample->text.n};
    give(job, &piece, sample->text.bytes);
    kvpi_text_drop(&sample->text, sample->text.n);
}

void kvpi_answer_end(kvpi_job *job, uint32_t number, kvpi_finish finish)
{
    kvpi_sample *sample = &job->samples[number];
    if (sample->finish != KVPI_FINISH_NONE)
        return;
    sample->finish = finish;
    (void)kvpi_text_end(&sample->text);
    job->last_over = number;
    if (++job->n_over < job->n_samples)
        give_end(job, number);
}

void kvpi_answer_fail(kvpi_job *job, const char *error)
{
    (void)pthread_mutex_lock(&job->mutex);
    job->error = error;
    (void)pthread_mutex_unlock(&job->mutex);
    for (uint32_t i = 0; i < job->n_samples; i++)
        kvpi_answer_end(job, i, KVPI_FINISH_FAILED);
}

void kvpi_answer_close(kvpi_job *job)
{
    if (job->n_over == job->n_samples)
        give_end(job, job->last_over);
    kvpi_job_close(job);
}
