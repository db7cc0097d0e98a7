/* inspect: what the two kinds of file that kvpager inspect reads have in common.
 *
 *   cmd_inspect.c   the command; which kind a file is (in the folder above)
 *   budget.c        what looking may cost
 *   contents.c      what is cached: blocks, namespaces, largest prefixes
 *   quotas.c        what namespaces may have
 *   snapshot.c      a snapshot
 *   arena.c         the arena of a cache that another process works on
 */
#ifndef KVPI_INSPECT_H
#define KVPI_INSPECT_H

#include <kvpager/inspect.h>
#include <stdbool.h>
#include <stdio.h>

#include "tool/input/budget.h"
#include "tool/input/input.h"
#include "tool/report/figures.h"

typedef struct kvpi_prefix {
    kvp_hash hash;
    kvp_hash before;
    uint32_t ns;
    uint32_t tokens;
} kvpi_prefix;

typedef struct kvpi_space {
    char *name; /* printable: other bytes as \xNN; NULL: not told */
    uint64_t blocks;
    uint64_t units;
    kvp_ns_info quota; /* what it has and may have, of an arena with quotas */
} kvpi_space;

/* Zero it; n_groups and has_states are set before anything is noted. */
typedef struct kvpi_contents {
    uint32_t n_groups; /* of blocks */
    bool has_states;   /* group n_groups has slots of recurrent state */
    bool no_memory;
    uint64_t counts[2][KVP_GROUPS_MAX][KVP_RETENTION_CLASSES]; /* blocks in which something can be
                                                                  hit, by tier, group, class */
    kvpi_space *spaces;
    uint64_t n_spaces;
    kvpi_prefix *prefixes;
    size_t n_prefixes;
    size_t capacity;
} kvpi_contents;

typedef struct kvpi_inspect_args {
    const char *path;
    uint64_t top;
    uint64_t max_memory; /* bytes; 0: by what the file has */
    bool json;
} kvpi_inspect_args;

/* Have places for n namespaces at least. */
void kvpi_contents_reserve(kvpi_contents *contents, uint64_t n);

/* Take note of an item; a `tell` whose context is the contents. */
void kvpi_contents_note(void *contents, const kvp_snapshot_item *item);

/* Leave the `top` largest prefixes that no other block goes on from. Returns: KVP_OK;
 * KVP_E_NO_MEMORY, also when there was none before */
kvp_status kvpi_contents_finish(kvpi_contents *contents, uint64_t top);

void kvpi_contents_print(const kvpi_contents *contents);
void kvpi_contents_add(kvpi_figures *to, const kvpi_contents *contents);
void kvpi_contents_drop(kvpi_contents *contents);

/* Take note of what a namespace that was told has. */
void kvpi_contents_note_quota(kvpi_contents *contents, uint32_t ns, const kvp_ns_info *info);

/* A row for each namespace and tier. */
void kvpi_contents_print_quotas(const kvpi_contents *contents, uint32_t n_tiers);
void kvpi_contents_add_quotas(kvpi_figures *to, const kvpi_contents *contents, uint32_t n_tiers);

/* As a namespace's name is printed; "?" when it is not known. */
const char *kvpi_contents_name(const kvpi_contents *contents, uint32_t ns);

/* Bytes as text: printable ones as they are, others as \xNN. The caller frees it. */
char *kvpi_inspect_printable(const void *bytes, size_t n);

extern const char *const kvpi_inspect_tiers[2];

void kvpi_inspect_add_groups(kvpi_figures *to, const kvp_group *groups, uint32_t n_groups);
void kvpi_inspect_print_groups(const kvp_group *groups, uint32_t n_groups);

/* What a file may cost: holes are no bytes that were read. */
kvpi_budget kvpi_inspect_budget(const kvpi_inspect_args *args, const kvpi_input *input);

/* Say that it would cost more. Returns: TOOL_FAILED */
int kvpi_inspect_refuse_memory(const kvpi_inspect_args *args, const kvpi_budget *budget,
                               uint64_t n_bytes);

/* Inspect a file that begins as one of its kind. Returns: an exit status */
int kvpi_inspect_snapshot(const kvpi_inspect_args *args, const kvpi_input *input);
int kvpi_inspect_arena(const kvpi_inspect_args *args, const kvpi_input *input);

#endif
