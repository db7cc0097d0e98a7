/* fake: a library with llama.cpp's interface, whose cells know what they hold.
 *
 * With n_swa, a cell that one id has and that its next token would not see may be taken, whatever
 * swa_full says, and then the id loses what it has before that cell. States leave such cells out.
 * Tokens still see all cells of their id, so each that is lost changes logits.
 *
 * KV of a token is a number made of the token, its position, and all cells that it sees: those of
 * its id at lower positions. Its logits are made of that number, so a cell that is missing, wrong
 * or one too many changes them. fake_kv tells what is right, from the tokens alone.
 *
 * What llama.cpp asserts, or refuses a batch for, ends the test: positions of an id continue its
 * last one, an id that is copied to does not have the position yet, ids are in range. */
#ifndef FAKE_H
#define FAKE_H

#include "llama.h"

enum { FAKE_IDS = 256, FAKE_VOCABULARY = 8 };

struct llama_model {
    int32_t n_swa;
    enum llama_rope_type rope;
    bool is_recurrent;
    bool is_hybrid;
    bool is_diffusion;
    bool has_encoder;
    bool lacks_decoder;
    const char *architecture; /* NULL: it does not say */
    uint64_t n_params;
    /* A model with text: tokens 0..255 are bytes, the three after them are special */
    bool has_text;
    const char *chat_template;
    uint32_t step_us; /* a decode takes at least so long */
};

enum {
    FAKE_END = 256,      /* <end>: ends a text */
    FAKE_IM_START = 257, /* <|im_start|> */
    FAKE_IM_END = 258,   /* <|im_end|>: ends a text, too */
    FAKE_TEXT_TOKENS = 259
};

/* Logit `i` of a model with text, after `token`. Texts are printable ASCII and characters of two
 * bytes, 0xC3 and another, each a token. */
float fake_text_logit(uint64_t kv, int32_t token, uint32_t i);

/* The next decode fails with `result` when `after` of its tokens have cells. */
void fake_fail(struct llama_context *context, int32_t result, uint32_t after);

/* Cells in use now, and the most there ever were. */
uint32_t fake_used(const struct llama_context *context);
uint32_t fake_most_used(const struct llama_context *context);

/* Wrong content in the cell of an id at a position. */
void fake_plant(struct llama_context *context, llama_seq_id id, llama_pos pos);

/* KV of a token: its position, and the sum of fake_seen of all tokens before it. */
uint64_t fake_kv(int32_t token, uint32_t pos, uint64_t seen);
uint64_t fake_seen(uint64_t kv, uint32_t pos);
float fake_logit(uint64_t kv, uint32_t i);

/* The id's next cell behind a position, or -1; and a new cell. 0: there is none. */
llama_pos fake_next_cell(const struct llama_context *context, llama_seq_id id, llama_pos pos,
                         uint64_t *out_kv);
int fake_set_cell(struct llama_context *context, llama_seq_id id, llama_pos pos, uint64_t kv);

/* Does a state of the id leave out its cell at the position? */
int fake_is_left_out(const struct llama_context *context, llama_seq_id id, llama_pos pos);

/* From now on the KV of a token is that of token + shift. */
void fake_shift_tokens(struct llama_context *context, int32_t shift);

/* ggml's back ends are inside (1), or libraries that are not loaded yet (0: as at first). */
void fake_set_backends(int are_inside);

/* Every assertion calls this: prints and aborts. */
void fake_broken(const char *what, int64_t a, int64_t b);

#endif
