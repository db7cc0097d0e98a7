/* answer: from logits to pieces of a job's text. The engine's thread calls it. */
#ifndef KVPI_SERVE_ANSWER_H
#define KVPI_SERVE_ANSWER_H

#include "job.h"

/* Chooses the next token of a sample and hands its text out. 1: the sample ends with it. `room` has
 * place for the vocabulary. */
int kvpi_answer_sample(kvpi_job *job, uint32_t sample, const float *logits,
                       const struct llama_vocab *vocab, llama_token_data *room, int32_t *out_token);

/* A sample is over: gives out what was held back, except of the last one. Nothing happens if it was
 * over. */
void kvpi_answer_end(kvpi_job *job, uint32_t sample, kvpi_finish finish);

/* All samples that are not over fail. `error` is static. */
void kvpi_answer_fail(kvpi_job *job, const char *error);

/* Gives out the end of the sample that was the last one, if all are over. Nothing follows. */
void kvpi_answer_close(kvpi_job *job);

#endif
