/* What llama.cpp knows of an architecture beside the keys of its files: gguf.c. */
#ifndef KVPI_GGUF_RULES_H
#define KVPI_GGUF_RULES_H

#include <stdbool.h>
#include <stdint.h>

typedef enum kvpi_gguf_windows {
    KVPI_GGUF_NO_WINDOWS, /* the key, if it is there, is not used */
    KVPI_GGUF_WINDOWS,    /* if the key is above 0 */
    KVPI_GGUF_ALWAYS      /* the key, or .window */
} kvpi_gguf_windows;

typedef enum kvpi_gguf_recurrent {
    KVPI_GGUF_NOT_RECURRENT,
    KVPI_GGUF_WITHOUT_KV,       /* layers without KV heads */
    KVPI_GGUF_WITHOUT_KV_OR_FF, /* of these, the ones that have no MLP */
    KVPI_GGUF_INTERVALS,        /* all but every interval-th */
    KVPI_GGUF_BESIDE_KV         /* all, and they attend, too */
} kvpi_gguf_recurrent;

typedef struct kvpi_gguf_rule {
    const char *architecture;
    bool is_known; /* else only that it may be like most */
    kvpi_gguf_windows windows;
    uint32_t window;  /* if the key is missing */
    uint32_t pattern; /* if its key is missing; 0: the key must be there */
    bool is_fixed;    /* the window is .window, whatever the key says */
    bool full_first;  /* of every `pattern` layers the first one has no window, not the last */
    bool chunked;
    uint32_t if_layers; /* windows are in models of so many layers only; 0: in all */
    kvpi_gguf_recurrent recurrent;
    uint32_t interval;
    const char *state_kind;
    bool mla;
    bool index;         /* an indexer in each layer */
    uint32_t kv_layers; /* the others read the KV of these; 0: a key says it */
    bool loops;
} kvpi_gguf_rule;

/* Give what is known of an architecture; of one that is not known, that it is like most.
 *
 * Gives:   refused  why its KV is not counted; NULL: it is
 */
kvpi_gguf_rule kvpi_gguf_rule_of(const char *architecture, const char **refused);

#endif
