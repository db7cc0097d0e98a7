/* inspect_budget: what looking at a file may cost. */
#include "tool/inspect/inspect.h"
#include "tool/text.h"
#include "tool/tool.h"

kvpi_budget kvpi_inspect_budget(const kvpi_inspect_args *args, const kvpi_input *input)
{
    return (kvpi_budget){.max = args->max_memory, .read = input->data_bytes};
}

int kvpi_inspect_refuse_memory(const kvpi_inspect_args *args, const kvpi_budget *budget,
                               uint64_t n_bytes)
{
    return kvpi_tool_fail("inspect",
                          "%s: reading it needs more than %s of memory%s; the file has %s "
                          "(--max-memory)",
                          args->path, kvpi_text_bytes((double)kvpi_budget_limit(budget)).of,
                          budget->max == 0 ? ", which is 64 MiB and 16 times its bytes" : "",
                          kvpi_text_bytes((double)n_bytes).of);
}
