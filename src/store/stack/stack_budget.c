/* stack_budget: how much is written to nearer stores. At most a second is saved up, or the largest
 * record so far if that is more. */
#include "store/stack/stack.h"

#define SECOND_NS UINT64_C(1000000000)
#define DAY_NS    (UINT64_C(86400) * SECOND_NS)

static void accrue(struct kvpi_stack *stack, uint64_t now_ns, uint64_t n_bytes)
{
    stack->largest = n_bytes > stack->largest ? n_bytes : stack->largest;
    const uint64_t most = stack->bytes_s > stack->largest ? stack->bytes_s : stack->largest;
    const uint64_t gone_ns = now_ns > stack->since_ns ? now_ns - stack->since_ns : 0;
    const double more = (double)stack->bytes_s * ((double)gone_ns / (double)SECOND_NS);
    if (more >= 1) {
        stack->since_ns = now_ns;
        stack->allowance =
            more >= (double)(most - stack->allowance) ? most : stack->allowance + (uint64_t)more;
    }
}

int kvpi_stack_may_carry(struct kvpi_stack *stack, uint64_t n_bytes)
{
    if (stack->bytes_s == 0 && stack->bytes_day == 0)
        return 1;
    const uint64_t now_ns = stack->now(stack->now_context);
    if (now_ns / DAY_NS > stack->day) {
        stack->day = now_ns / DAY_NS;
        stack->day_bytes = 0;
    }
    if (stack->bytes_s > 0)
        accrue(stack, now_ns, n_bytes);
    if ((stack->bytes_s > 0 && stack->allowance < n_bytes) ||
        (stack->bytes_day > 0 && stack->day_bytes + n_bytes > stack->bytes_day))
        return 0;
    if (stack->bytes_s > 0)
        stack->allowance -= n_bytes;
    stack->day_bytes += n_bytes;
    return 1;
}
