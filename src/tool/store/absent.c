/* Stores, in a build without them: opening one fails, so the other calls are never made. */
#include "tool/store/attach.h"
#include "tool/tool.h"

#pragma GCC diagnostic ignored "-Wunused-parameter" /* of what is never called */

static int refuse(const char *command)
{
    return kvpi_tool_fail(command, "this kvpager was built without stores: build it where "
                                   "libcrypto 3.0 is installed (Debian: libssl-dev)");
}

int cmd_store(int argc, char **argv)
{
    return refuse("store");
}

int kvpi_attach_open(const kvpi_attach_options *options, kvp_cache *cache, kvp_ns ns,
                     kvpi_store_report *report, kvpi_attach **out)
{
    return refuse("replay");
}

uint32_t kvpi_attach_record_tokens(const kvpi_attach *attach)
{
    return 1;
}

kvp_status kvpi_attach_fetch(kvpi_attach *attach, const kvp_prompt *prompt, uint32_t *out_outcome)
{
    return KVP_E_STATE;
}

void kvpi_attach_clock(kvpi_attach *attach, uint64_t now)
{
}

kvp_status kvpi_attach_see(kvpi_attach *attach, const int32_t *tokens, uint32_t n_tokens,
                           uint32_t outcome, kvpi_watch_store *out)
{
    return KVP_E_STATE;
}

kvp_status kvpi_attach_hit(kvpi_attach *attach, kvp_seq seq, uint32_t hit_tokens)
{
    return KVP_E_STATE;
}

kvp_status kvpi_attach_sealed(kvpi_attach *attach, kvp_seq seq)
{
    return KVP_E_STATE;
}

kvp_status kvpi_attach_run_plan(kvpi_attach *attach)
{
    return KVP_E_STATE;
}

kvp_status kvpi_attach_copies(kvpi_attach *attach, const kvp_copy *copies, uint32_t n,
                              uint64_t *out_states)
{
    return KVP_E_STATE;
}

void kvpi_attach_at(kvpi_attach *attach, uint64_t now_ns)
{
}

kvp_status kvpi_attach_ask(kvpi_attach *attach, const kvp_prompt *prompt, uint64_t tag,
                           uint32_t *out_outcome)
{
    return KVP_E_STATE;
}

kvp_status kvpi_attach_work(kvpi_attach *attach, kvp_spill_answer *out_answers, uint32_t *out_n,
                            bool *out_happened)
{
    return KVP_E_STATE;
}

void kvpi_attach_wait(const kvpi_attach *attach, uint64_t timeout_ns)
{
}

uint64_t kvpi_attach_due(const kvpi_attach *attach)
{
    return KVPI_MODELLED_NEVER;
}

void kvpi_attach_close(kvpi_attach *attach)
{
}

int kvpi_store_report_verdict(const kvpi_store_report *report)
{
    return TOOL_OK;
}

void kvpi_store_report_add(kvpi_figures *to, const kvpi_store_report *report)
{
    kvpi_figures_text(to, "store", NULL);
}

void kvpi_store_report_print(const kvpi_store_report *report, const json_t *figures, FILE *file)
{
}
