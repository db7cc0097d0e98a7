/* contents: what is cached, block by block, as a snapshot's or an arena's items tell it. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tool/inspect/inspect.h"
#include "tool/tool.h"

const char *const kvpi_inspect_tiers[2] = {"device", "host"};

char *kvpi_inspect_printable(const void *bytes, size_t n)
{
    const uint8_t *name = bytes;
    char *text = malloc(4 * n + 1);
    size_t at = 0;
    if (text == NULL)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        if (name[i] >= 0x20 && name[i] < 0x7F && name[i] != '\\')
            text[at++] = (char)name[i];
        else
            at += (size_t)snprintf(text + at, 5, "\\x%02x", name[i]);
    }
    text[at] = '\0';
    return text;
}

/* -------------------------------------------------------------------------------------- taking */

void kvpi_contents_reserve(kvpi_contents *contents, uint64_t n)
{
    if (n <= contents->n_spaces)
        return;
    kvpi_space *grown = realloc(contents->spaces, n * sizeof *grown);
    contents->no_memory |= grown == NULL;
    if (grown == NULL)
        return;
    memset(grown + contents->n_spaces, 0, (n - contents->n_spaces) * sizeof *grown);
    contents->spaces = grown;
    contents->n_spaces = n;
}

void kvpi_contents_note(void *context, const kvp_snapshot_item *item)
{
    kvpi_contents *c = context;
    kvpi_contents_reserve(c, (uint64_t)item->ns + 1);
    if (c->no_memory)
        return;
    kvpi_space *s = &c->spaces[item->ns];
    if (item->kind == KVP_SNAPSHOT_NAMESPACE) {
        s->name = kvpi_inspect_printable(item->name, item->name_bytes);
        c->no_memory |= s->name == NULL;
        return;
    }
    c->counts[item->block.tier][item->block.group][item->retention]++;
    if (item->block.group == c->n_groups)
        return; /* a checkpoint: as a prefix it is that of its unit's block */
    s->blocks++;
    s->units += item->n_units;
    if (c->n_prefixes == c->capacity) {
        const size_t capacity = c->capacity == 0 ? 1024 : 2 * c->capacity;
        kvpi_prefix *grown = realloc(c->prefixes, capacity * sizeof *grown);
        c->no_memory |= grown == NULL;
        if (grown == NULL)
            return;
        c->prefixes = grown;
        c->capacity = capacity;
    }
    c->prefixes[c->n_prefixes++] =
        (kvpi_prefix){item->hash, item->before, item->ns, item->prefix_tokens};
}

/* ------------------------------------------------------------------------------------ prefixes */

static int by_hash(const void *a, const void *b)
{
    return memcmp(((const kvpi_prefix *)a)->hash.bytes, ((const kvpi_prefix *)b)->hash.bytes, 16);
}

static int by_bytes(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(kvp_hash));
}

static int by_tokens(const void *a, const void *b)
{
    const kvpi_prefix *x = a, *y = b;
    return x->tokens != y->tokens ? (x->tokens < y->tokens) - (x->tokens > y->tokens)
                                  : by_hash(a, b);
}

kvp_status kvpi_contents_finish(kvpi_contents *c, uint64_t top)
{
    const size_t n = c->n_prefixes;
    kvp_hash *before = c->no_memory ? NULL : malloc((n + 1) * sizeof *before);
    size_t kept = 0;
    if (before == NULL)
        return KVP_E_NO_MEMORY;
    for (size_t i = 0; i < n; i++)
        before[i] = c->prefixes[i].before;
    qsort(before, n, sizeof *before, by_bytes);
    if (n > 0)
        qsort(c->prefixes, n, sizeof *c->prefixes, by_hash);
    for (size_t i = 0; i < n; i++) {
        const kvpi_prefix *p = &c->prefixes[i];
        const bool again = kept > 0 && by_hash(&c->prefixes[kept - 1], p) == 0;
        if (!again && bsearch(&p->hash, before, n, sizeof *before, by_bytes) == NULL)
            c->prefixes[kept++] = *p;
    }
    if (kept > 0)
        qsort(c->prefixes, kept, sizeof *c->prefixes, by_tokens);
    c->n_prefixes = kept < top ? kept : (size_t)top;
    free(before);
    return KVP_OK;
}

static void hex(const kvp_hash *hash, char out[33])
{
    for (int i = 0; i < 16; i++)
        snprintf(out + (size_t)2 * (size_t)i, 3, "%02x", hash->bytes[i]);
}

/* -------------------------------------------------------------------------------------- output */

const char *kvpi_contents_name(const kvpi_contents *c, uint32_t ns)
{
    return ns < c->n_spaces && c->spaces[ns].name != NULL ? c->spaces[ns].name : "?";
}

void kvpi_contents_print(const kvpi_contents *c)
{
    char hash[33];
    printf("\n%-8s %6s %6s %12s\n", "tier", "group", "class", "blocks");
    for (uint32_t t = 0; t < 2; t++)
        for (uint32_t g = 0; g < c->n_groups + c->has_states; g++)
            for (uint32_t k = 0; k < KVP_RETENTION_CLASSES; k++)
                if (c->counts[t][g][k] > 0)
                    printf("%-8s %6" PRIu32 " %6" PRIu32 " %12" PRIu64 "\n", kvpi_inspect_tiers[t],
                           g, k, c->counts[t][g][k]);
    printf("\n%12s %12s  %s\n", "blocks", "units", "namespace");
    for (uint64_t i = 0; i < c->n_spaces; i++)
        printf("%12" PRIu64 " %12" PRIu64 "  '%s'\n", c->spaces[i].blocks, c->spaces[i].units,
               kvpi_contents_name(c, (uint32_t)i));
    printf("\n%12s  %-32s  %s\n", "tokens", "largest prefixes", "namespace");
    for (size_t i = 0; i < c->n_prefixes; i++) {
        hex(&c->prefixes[i].hash, hash);
        printf("%12" PRIu32 "  %s  '%s'\n", c->prefixes[i].tokens, hash,
               kvpi_contents_name(c, c->prefixes[i].ns));
    }
}

static void add_blocks(kvpi_figures *to, const kvpi_contents *c, uint32_t tier, uint32_t group)
{
    for (uint32_t k = 0; k < KVP_RETENTION_CLASSES; k++) {
        if (c->counts[tier][group][k] == 0)
            continue;
        kvpi_figures_open(to, NULL);
        kvpi_figures_text(to, "tier", kvpi_inspect_tiers[tier]);
        kvpi_figures_integer(to, "group", group);
        kvpi_figures_integer(to, "class", k);
        kvpi_figures_integer(to, "blocks", c->counts[tier][group][k]);
        kvpi_figures_close(to);
    }
}

void kvpi_contents_add(kvpi_figures *to, const kvpi_contents *c)
{
    char hash[33];
    kvpi_figures_open_array(to, "cached");
    for (uint32_t t = 0; t < 2; t++)
        for (uint32_t g = 0; g < c->n_groups + c->has_states; g++)
            add_blocks(to, c, t, g);
    kvpi_figures_close(to);
    kvpi_figures_open_array(to, "namespaces");
    for (uint64_t i = 0; i < c->n_spaces; i++) {
        kvpi_figures_open(to, NULL);
        kvpi_figures_text(to, "name", c->spaces[i].name);
        kvpi_figures_integer(to, "blocks", c->spaces[i].blocks);
        kvpi_figures_integer(to, "units", c->spaces[i].units);
        kvpi_figures_close(to);
    }
    kvpi_figures_close(to);
    kvpi_figures_open_array(to, "prefixes");
    for (size_t i = 0; i < c->n_prefixes; i++) {
        hex(&c->prefixes[i].hash, hash);
        kvpi_figures_open(to, NULL);
        kvpi_figures_integer(to, "tokens", c->prefixes[i].tokens);
        kvpi_figures_text(to, "hash", hash);
        kvpi_figures_text(to, "namespace", c->spaces[c->prefixes[i].ns].name);
        kvpi_figures_close(to);
    }
    kvpi_figures_close(to);
}

void kvpi_contents_drop(kvpi_contents *c)
{
    for (uint64_t i = 0; i < c->n_spaces; i++)
        free(c->spaces[i].name);
    free(c->spaces);
    free(c->prefixes);
    *c = (kvpi_contents){0};
}

void kvpi_inspect_add_groups(kvpi_figures *to, const kvp_group *groups, uint32_t n_groups)
{
    kvpi_figures_open_array(to, "groups");
    for (uint32_t g = 0; g < n_groups; g++) {
        kvpi_figures_open(to, NULL);
        const bool chunks = groups[g].sink_tokens == KVP_CHUNKED;
        kvpi_figures_integer_if(to, !chunks, "sink_tokens", groups[g].sink_tokens);
        kvpi_figures_integer_if(to, !chunks, "recent_tokens", groups[g].recent_tokens);
        kvpi_figures_integer_if(to, chunks, "chunk_tokens", groups[g].recent_tokens);
        kvpi_figures_close(to);
    }
    kvpi_figures_close(to);
}

void kvpi_inspect_print_groups(const kvp_group *groups, uint32_t n_groups)
{
    for (uint32_t g = 0; g < n_groups; g++)
        if (groups[g].sink_tokens == KVP_CHUNKED)
            printf("group %" PRIu32 "        chunks of %" PRIu32 "\n", g, groups[g].recent_tokens);
        else
            printf("group %" PRIu32 "        sinks %" PRIu32 ", window %" PRIu32 "\n", g,
                   groups[g].sink_tokens, groups[g].recent_tokens);
}
