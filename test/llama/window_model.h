/* window_model: a small Gemma 3 with a sliding window, in f32, whose weights are made from numbers:
 * it says nothing, and its logits depend on every cell that a token sees. */
#ifndef WINDOW_MODEL_H
#define WINDOW_MODEL_H

struct llama_model;

enum { WINDOW_MODEL_WINDOW = 128 };

/* With the tokenizer of the file. Ends the program where that cannot be had; NULL: llama.cpp
 * refuses the model. */
struct llama_model *window_model_load(const char *path);

#endif
