/* Fuzz target: bytes become calls on a scheduler, submit, step, finish, fail, abort, pause, resume,
 * reorder, hold, skip, release, tick, flush, sequences and overlapped steps of the caller's own,
 * with kvp_cache_check and kvp_sched_check after each. With and without a host tier, layer groups,
 * windows, drafts; all ways to preempt.
 *
 * What requests should contain is kept aside, and everything that the scheduler says of them is
 * compared: every input token and position of a step, every token read back. Sampled tokens are a
 * function of all that is before them, so a step that computes the wrong sequence shows. Drafts are
 * these tokens where they are accepted, and others behind. Plans and
 * steps run on a memory of sums (sched_memory.h), so KV that is not the sequence's own shows. In
 * the end whatever is left must finish within a bounded number of steps, and every block come back.
 * */
#include "sched_session.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ------------------------------------------------------------------------------------ requests */

static struct known *find(struct session *s, kvp_request handle)
{
    for (uint32_t i = 0; i < MAX_REQUESTS; i++) {
        if (s->known[i].is_here && s->known[i].handle.bits == handle.bits)
            return &s->known[i];
    }
    return NULL;
}

static void set_up(struct session *s, struct known *k)
{
    static const uint32_t alphabet = 3;
    memset(k, 0, sizeof *k);
    k->prompt = 1 + take(s, MAX_PROMPT);
    k->n_samples = take(s, 3) == 0 ? 1 + take(s, MAX_SAMPLES) : 1;
    k->max_new = 1 + take(s, MAX_NEW);
    k->priority = take(s, 4) == 0 ? (int32_t)take(s, 3) - 1 : 0;
    const uint32_t same = take(s, 2) ? k->prompt : take(s, MAX_PROMPT);
    for (uint32_t i = 0; i < k->prompt; i++)
        k->borrowed[i] = i < same ? (int32_t)(i / 8) : (int32_t)take(s, alphabet);
    for (uint32_t i = 0; i < k->n_samples; i++) {
        memcpy(k->text[i], k->borrowed, sizeof k->borrowed);
        k->n[i] = k->prompt;
    }
}

/* Samples are forked at once, and each may need a copy in each group. */
static int are_samples_too_many(struct session *s, const struct known *k)
{
    kvp_config config;
    require(kvp_cache_config_get(s->cache, &config) == KVP_OK);
    return k->n_samples > s->config.max_running ||
           (k->n_samples > 1 && k->n_samples * config.n_groups > config.max_copies);
}

static void check_refusal(struct session *s, const struct known *k, kvp_status status,
                          const kvp_sched_limit *limit)
{
    const uint32_t all = k->prompt + k->max_new;
    switch (status) {
    case KVP_E_ARG: require(are_samples_too_many(s, k)); break;
    case KVP_E_NEVER:
        require(k->prompt > limit->max_prompt_tokens || all > limit->max_tokens);
        break;
    case KVP_E_TOO_LONG: require(all > MAX_TEXT); break;
    default: require(kvp_status_class(status) == KVP_CLASS_RETRY);
    }
}

static void submit(struct session *s)
{
    struct known *k = s->known;
    while (k < s->known + MAX_REQUESTS && k->is_here)
        k++;
    if (k == s->known + MAX_REQUESTS)
        return;
    set_up(s, k);
    kvp_prompt prompt = {.struct_size = sizeof prompt, .tokens = k->borrowed};
    prompt.n_tokens = k->prompt;
    prompt.tag = s->n_submitted;
    kvp_submission submission = {.struct_size = sizeof submission, .prompt = &prompt};
    submission.ns = s->ns;
    submission.priority = k->priority;
    submission.n_samples = k->n_samples;
    submission.max_new_tokens = k->max_new;
    const uint32_t flags = take(s, 256);
    submission.flags = flags % 2 ? KVP_SUBMIT_BORROW : 0;
    submission.flags |= flags / 16 == 15 ? KVP_SUBMIT_NO_LOAD : 0;
    submission.load_deadline = flags / 16 == 14 ? s->now + 1 + flags % 16 : 0;
    kvp_sched_limit limit;
    const kvp_status status = kvp_sched_submit(s->sched, &submission, &k->handle, &limit);
    if (status != KVP_OK) {
        check_refusal(s, k, status, &limit);
        return;
    }
    if (!(submission.flags & KVP_SUBMIT_BORROW))
        memset(k->borrowed, 0x7f, sizeof k->borrowed);
    k->is_here = 1;
    k->never_loads = (submission.flags & KVP_SUBMIT_NO_LOAD) != 0;
    k->deadline = submission.load_deadline;
    k->arrival = s->n_submitted++;
}

static struct known *choose(struct session *s)
{
    struct known *k = &s->known[take(s, MAX_REQUESTS)];
    return k->is_here ? k : NULL;
}

static void over(struct session *s, struct known *k)
{
    require(k->is_here);
    kvp_request_info info;
    require(kvp_request_info_get(s->sched, k->handle, &info) == KVP_E_HANDLE);
    k->is_here = 0;
    s->n_over++;
}

static void cancel(struct session *s, struct known *k)
{
    require(kvp_sched_abort(s->sched, k->handle) == KVP_OK);
    over(s, k);
}

static void check_known(struct session *s, struct known *k)
{
    int32_t text[MAX_TEXT];
    kvp_request_info info;
    require(kvp_request_info_get(s->sched, k->handle, &info) == KVP_OK);
    require((info.state == KVP_REQUEST_PAUSED) == k->is_paused);
    require((info.state == KVP_REQUEST_LOADING) == k->is_held);
    require(!k->is_held || info.load_deadline == k->deadline);
    require(!k->is_held || (!info.holds_blocks && !info.is_swapped));
    if (info.preemptions - info.swaps > k->recomputes) /* it has come to wait again */
        k->is_decided = 0;
    k->recomputes = info.preemptions - info.swaps;
    require(info.passed_over <= s->config.max_passed_over);
    for (uint32_t i = 0; i < k->n_samples; i++) {
        kvp_sample_info sample;
        require(kvp_request_sample(s->sched, k->handle, i, &sample) == KVP_OK);
        require(sample.n_tokens == k->n[i]);
        require((int)sample.has_ended == k->has_ended[i]);
        require(kvp_request_tokens(s->sched, k->handle, i, (kvp_range){0, k->n[i]}, text) ==
                KVP_OK);
        require(memcmp(text, k->text[i], k->n[i] * sizeof *text) == 0);
    }
}

/* -------------------------------------------------------------------------------- step, finish */

static int ranks_before(const struct known *a, const struct known *b)
{
    return a->priority != b->priority ? a->priority < b->priority : a->arrival < b->arrival;
}

/* Did `other` come in past one that did not? Swapped requests stand before waiting ones. */
static int is_past(const struct known *other, const struct known *waiting, uint32_t state)
{
    if (state == KVP_REQUEST_SWAPPED)
        return other->came_in == 2 || (other->came_in == 1 && ranks_before(waiting, other));
    return other->came_in == 2 && ranks_before(waiting, other);
}

static void check_order(struct session *s)
{
    for (uint32_t i = 0; i < MAX_REQUESTS; i++) {
        struct known *waiting = &s->known[i];
        kvp_request_info info;
        if (!waiting->is_here)
            continue;
        require(kvp_request_info_get(s->sched, waiting->handle, &info) == KVP_OK);
        uint32_t n_past = 0;
        for (uint32_t j = 0; j < MAX_REQUESTS; j++) {
            const struct known *other = &s->known[j];
            n_past += other->is_here && is_past(other, waiting, info.state);
        }
        if (info.state == KVP_REQUEST_WAITING && info.passed_over == waiting->passed)
            n_past *= s->step.waited[KVP_WAIT_PREFIX] == 0; /* it may have been kept back */
        /* Those that others made way for do not count for swapped ones. */
        const int may_be_fewer = s->config.make_way && info.state == KVP_REQUEST_SWAPPED;
        if (info.state == KVP_REQUEST_WAITING || info.state == KVP_REQUEST_SWAPPED)
            require(may_be_fewer ? info.passed_over >= waiting->passed &&
                                       info.passed_over <= waiting->passed + n_past
                                 : info.passed_over == waiting->passed + n_past);
        waiting->passed = info.passed_over;
    }
}

/* All that decode have drafts, as many as there is use for, or none has; who is swapped in has
 * none. */
static void check_drafts(struct session *s)
{
    const kvp_step *step = &s->step;
    uint32_t n_drafts = 0;
    for (uint32_t i = 0; i < step->n_decoding && step->n_drafts > 0; i++) {
        const struct known *k = find(s, step->seqs[i].request);
        const uint32_t left = k->prompt + k->max_new - k->n[step->seqs[i].sample] - 1;
        const uint32_t most = left < s->config.draft_tokens ? left : s->config.draft_tokens;
        require(step->drafts[i] == (k->came_in == 1 ? 0 : most));
        n_drafts += step->drafts[i];
    }
    require(n_drafts == step->n_drafts && step->n_tokens + n_drafts <= s->config.step_tokens);
}

static void check_step(struct session *s)
{
    const kvp_step *step = &s->step;
    uint32_t n_tokens = 0;
    uint32_t n_sampled = 0;
    require(step->n_tokens <= s->config.step_tokens);
    require(step->n_seqs <= s->config.max_running);
    for (uint32_t i = 0; i < step->n_seqs; i++) {
        const kvp_step_seq *item = &step->seqs[i];
        const struct known *k = find(s, item->request);
        kvp_seq_info info;
        require(k != NULL && !k->is_paused && !k->is_held && item->n_tokens >= 1);
        require(kvp_seq_info_get(s->cache, item->seq, &info) == KVP_OK);
        require(item->begin + item->n_tokens <= info.n_tokens);
        require(item->begin <= info.computed_tokens && info.tag == k->arrival);
        require(memcmp(step->tokens + n_tokens, k->text[item->sample] + item->begin,
                       item->n_tokens * sizeof(int32_t)) == 0);
        int64_t slots[MAX_TEXT];
        require(kvp_seq_slots(s->cache, item->seq, 0, item->begin, item->n_tokens, slots) ==
                KVP_OK);
        n_tokens += item->n_tokens;
        n_sampled += item->n_sampled;
    }
    require(n_tokens == step->n_tokens && n_sampled == step->n_sampled);
    check_drafts(s);
}

static void note_ended(struct session *s, const kvp_ended *ended)
{
    struct known *k = find(s, ended->request);
    require(k != NULL && ended->tag == k->arrival);
    if (ended->sample == KVP_ALL_SAMPLES) {
        require(ended->reason == KVP_END_REFUSED && ended->status != KVP_OK && ended->is_last);
    } else {
        require(k->has_ended[ended->sample]);
        require(ended->new_tokens == k->n[ended->sample] - k->prompt);
        require((ended->reason == KVP_END_LENGTH) <= (ended->new_tokens == k->max_new));
    }
    if (ended->is_last)
        over(s, k);
}

/* Overlapped, or not. */
static void take_plan(struct session *s, kvp_copy *copies, uint32_t *n, uint64_t *step)
{
    if (s->cache_config.steps == KVP_STEPS_OVERLAPPED)
        require(kvp_step_begin(s->cache, copies, MAX_COPIES, n, step) == KVP_OK);
    else
        require(kvp_plan_take(s->cache, copies, MAX_COPIES, n) == KVP_OK);
}

static int32_t token_after(const int32_t *text, uint32_t n, uint32_t salt)
{
    uint32_t sum = salt;
    for (uint32_t i = 0; i < n; i++)
        sum = sum * 31 + (uint32_t)text[i];
    return (int32_t)(sum % 3);
}

/* The forward pass of an item: reads, or writes. What it writes behind the drafts that are accepted
 * is of other tokens. */
static int run_item(struct session *s, const struct known *k, uint32_t i, int is_reading)
{
    const kvp_step_seq *item = &s->step.seqs[i];
    const int decodes = i < s->step.n_decoding;
    const uint32_t n_drafts = decodes && s->step.n_drafts > 0 ? s->step.drafts[i] : 0;
    const uint32_t n_accepted = decodes ? s->counts[i] - 1 : 0;
    const uint32_t end = item->begin + item->n_tokens;
    const kvp_range written = {item->begin, end + n_drafts};
    const kvp_range read = {item->begin, end + n_accepted};
    int32_t text[MAX_TEXT];
    memcpy(text, k->text[item->sample], sizeof text);
    for (uint32_t at = end; at < written.end; at++)
        text[at] = at < read.end ? token_after(text, at, 0) : 7;
    return is_reading ? sched_memory_read(&s->memory, s->cache, item->seq, text, read)
                      : sched_memory_write(&s->memory, s->cache, item->seq, text, written);
}

/* The plan runs, and the forward pass: of requests that are still here. */
static void run_work(struct session *s)
{
    const kvp_step *step = &s->step;
    require(sched_memory_copy(&s->memory, s->copies, s->n_copies));
    for (int is_reading = 0; is_reading < 2; is_reading++) {
        for (uint32_t i = 0; i < step->n_seqs; i++) {
            const struct known *k = find(s, step->seqs[i].request);
            require(k == NULL || run_item(s, k, i, is_reading));
        }
    }
}

static void end_work(struct session *s)
{
    run_work(s);
    if (s->cache_config.steps == KVP_STEPS_OVERLAPPED)
        require(kvp_step_done(s->cache, s->step_number, NULL) == KVP_OK);
}

/* Of a step that fails, ordered ones have run their plan at least. */
static void fail_work(struct session *s)
{
    if (s->cache_config.steps == KVP_STEPS_OVERLAPPED) {
        require(sched_memory_spoil(&s->memory, s->copies, s->n_copies));
        require(kvp_step_failed(s->cache, s->step_number, NULL, 0, NULL) == KVP_OK);
    } else {
        require(sched_memory_copy(&s->memory, s->copies, s->n_copies));
    }
}

static void note_in(struct session *s, const kvp_request *requests, uint32_t n, int how)
{
    for (uint32_t i = 0; i < n; i++) {
        struct known *k = find(s, requests[i]);
        require(k != NULL && !k->came_in);
        k->came_in = how;
    }
}

static void check_out(struct session *s, const kvp_request *requests, uint32_t n, int is_swap)
{
    for (uint32_t i = 0; i < n; i++) {
        const struct known *k = find(s, requests[i]);
        kvp_request_info info;
        require(k != NULL && !k->came_in);
        require(kvp_request_info_get(s->sched, requests[i], &info) == KVP_OK);
        require(!info.holds_blocks && (int)info.is_swapped <= is_swap);
    }
}

static uint32_t count_held(const struct session *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < MAX_REQUESTS; i++)
        n += s->known[i].is_here && s->known[i].is_held;
    return n;
}

static void check_waited(struct session *s)
{
    kvp_sched_stats stats;
    uint32_t n_waiting = 0;
    uint32_t n_swapped = 0;
    require(kvp_sched_stats_get(s->sched, &stats) == KVP_OK);
    for (uint32_t i = 0; i < KVP_WAIT_REASONS; i++) {
        n_waiting += s->step.waited[i];
        n_swapped += s->step.waited_swapped[i];
    }
    require(n_waiting == stats.waiting_requests && n_swapped == stats.swapped_requests);
    require(s->step.n_loading == stats.loading_requests && stats.loading_requests == count_held(s));
    require(stats.held == stats.released + stats.expired + stats.dropped + stats.loading_requests);
    require(stats.preemptions == stats.recomputed + stats.swapped_out);
}

/* A step of the caller's own, with nothing but a plan, that is out for a while. */
static void step_own(struct session *s)
{
    kvp_copy copies[MAX_COPIES];
    uint32_t n;
    if (s->cache_config.steps != KVP_STEPS_OVERLAPPED || s->is_out)
        return;
    if (s->own_step != 0) {
        require(kvp_step_done(s->cache, s->own_step, NULL) == KVP_OK);
        s->own_step = 0;
    } else {
        take_plan(s, copies, &n, &s->own_step);
        require(sched_memory_copy(&s->memory, copies, n));
    }
}

/* Steps that are done wait for one before them; not for too long. */
static void limit_steps(struct session *s)
{
    kvp_stats stats;
    require(kvp_cache_stats_get(s->cache, &stats) == KVP_OK);
    if (stats.steps_out == s->cache_config.max_steps_out)
        step_own(s);
}

static void make_step(struct session *s)
{
    if (s->is_out) {
        require(kvp_sched_step(s->sched, &s->step) == KVP_E_STATE);
        return;
    }
    limit_steps(s);
    require(kvp_sched_step(s->sched, &s->step) == KVP_OK);
    take_plan(s, s->copies, &s->n_copies, &s->step_number);
    for (uint32_t i = 0; i < MAX_REQUESTS; i++)
        s->known[i].came_in = 0;
    for (uint32_t i = 0; i < s->step.n_ended; i++)
        note_ended(s, &s->step.ended[i]);
    note_in(s, s->step.swapped_in, s->step.n_swapped_in, 1);
    note_in(s, s->step.admitted, s->step.n_admitted, 2);
    check_out(s, s->step.preempted, s->step.n_preempted, 0);
    check_out(s, s->step.swapped_out, s->step.n_swapped_out, 1);
    check_order(s);
    check_step(s);
    check_waited(s);
    s->is_out = s->step.n_seqs > 0;
    if (!s->is_out)
        end_work(s);
}

static void use_own(struct session *s)
{
    static const int32_t tokens[MAX_PROMPT];
    kvp_prompt prompt = {.struct_size = sizeof prompt, .tokens = tokens};
    prompt.n_tokens = 1 + take(s, MAX_PROMPT);
    if (s->own.bits != 0) {
        require(kvp_seq_close(s->cache, s->own, NULL) == KVP_OK);
        s->own.bits = 0;
    } else if (kvp_seq_open(s->cache, s->ns, &prompt, &s->own, NULL) != KVP_OK) {
        s->own.bits = 0;
    }
}

/* How many tokens become known of each that decodes: equally many for samples of a request. */
static void draw_counts(struct session *s)
{
    for (uint32_t i = 0; i < s->step.n_decoding; i++) {
        uint32_t j = 0;
        while (s->step.seqs[j].request.bits != s->step.seqs[i].request.bits)
            j++;
        s->counts[i] = j < i                  ? s->counts[j]
                       : s->step.n_drafts > 0 ? 1 + take(s, s->step.drafts[i] + 1)
                                              : 1;
    }
}

static int32_t add_token(struct known *k, uint32_t idx, uint32_t salt)
{
    const int32_t token = token_after(k->text[idx], k->n[idx], salt);
    k->text[idx][k->n[idx]++] = token;
    return token;
}

/* Sample for every item, also for those aborted meanwhile. Gives the number of tokens. */
static uint32_t sample(struct session *s, int32_t *tokens, uint8_t *ended)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->step.n_seqs; i++) {
        const kvp_step_seq *item = &s->step.seqs[i];
        struct known *k = find(s, item->request);
        const uint32_t each = i < s->step.n_decoding ? s->counts[i] : 1;
        for (uint32_t j = 0; j < item->n_sampled; j++, ended++) {
            const uint32_t idx = item->n_sampled > 1 ? j : item->sample;
            *ended = take(s, 16) == 1;
            for (uint32_t c = 0; c < each; c++)
                tokens[n++] = k == NULL ? -1 : add_token(k, idx, j);
            if (k != NULL)
                k->has_ended[idx] = *ended || k->n[idx] == k->prompt + k->max_new;
        }
    }
    return n;
}

static kvp_status report(struct session *s, const int32_t *tokens, const uint8_t *ended,
                         kvp_step_end *end)
{
    return s->step.n_drafts > 0 ? kvp_sched_finish_drafts(s->sched, tokens, s->counts, ended, end)
                                : kvp_sched_finish(s->sched, tokens, ended, end);
}

static void finish(struct session *s)
{
    int32_t tokens[MAX_RUNNING * (1 + MAX_DRAFTS)];
    uint8_t ended[MAX_RUNNING];
    kvp_step_end end;
    if (!s->is_out) {
        require(kvp_sched_finish(s->sched, NULL, NULL, NULL) == KVP_E_STATE);
        return;
    }
    require(kvp_sched_reclaim(s->sched, NULL) == KVP_OK);
    draw_counts(s);
    end_work(s);
    const uint32_t n = sample(s, tokens, ended);
    require(s->step.n_drafts > 0 ? n >= s->step.n_sampled : n == s->step.n_sampled);
    kvp_status status = report(s, n > 0 ? tokens : NULL, ended, &end);
    if (status == KVP_E_NO_SEQS && s->own.bits != 0) {
        use_own(s);
        status = report(s, n > 0 ? tokens : NULL, ended, &end);
    }
    require(status == KVP_OK);
    s->is_out = 0;
    for (uint32_t i = 0; i < end.n_ended; i++)
        note_ended(s, &end.ended[i]);
}

/* -------------------------------------------------------------------------------- other calls */

static void reorder(struct session *s, struct known *k)
{
    static struct known before;
    uint32_t parents[MAX_SAMPLES];
    int32_t tokens[MAX_SAMPLES];
    for (uint32_t i = 0; i < MAX_SAMPLES; i++) {
        parents[i] = take(s, k->n_samples);
        tokens[i] = (int32_t)take(s, 3);
    }
    const kvp_status status = kvp_sched_reorder(s->sched, k->handle, parents, tokens);
    int is_wrong = 0;
    for (uint32_t i = 0; i < k->n_samples; i++)
        is_wrong |= !k->has_ended[i] && k->has_ended[parents[i]];
    require(is_wrong ? status == KVP_E_ARG : status == KVP_OK || status == KVP_E_STATE);
    if (status != KVP_OK)
        return;
    before = *k;
    for (uint32_t i = 0; i < k->n_samples; i++) {
        if (k->has_ended[i])
            continue;
        memcpy(k->text[i], before.text[parents[i]], sizeof k->text[i]);
        k->n[i] = before.n[parents[i]];
        k->text[i][k->n[i] - 1] = tokens[i];
    }
}

static void renew_namespace(struct session *s)
{
    require(kvp_ns_close(s->cache, s->ns) == KVP_OK);
    require(kvp_ns_open(s->cache, "a", 1, &s->ns) == KVP_OK);
}

static void pause_or_resume(struct session *s, struct known *k, int is_pause)
{
    require((is_pause ? kvp_sched_pause(s->sched, k->handle)
                      : kvp_sched_resume(s->sched, k->handle)) == KVP_OK);
    k->is_paused = is_pause;
    k->is_held = k->is_held && !is_pause;
}

/* -------------------------------------------------------------------------------------- holds */

static int is_undecided(struct session *s, const struct known *k)
{
    kvp_request_info info;
    require(kvp_request_info_get(s->sched, k->handle, &info) == KVP_OK);
    return s->config.max_loading > 0 && info.state == KVP_REQUEST_WAITING && !k->is_decided &&
           !k->never_loads;
}

static void hold_or_skip(struct session *s, struct known *k, uint32_t wait)
{
    const uint64_t deadline = wait == 15 ? UINT64_MAX : s->now + wait;
    kvp_request_info info;
    require(kvp_request_info_get(s->sched, k->handle, &info) == KVP_OK);
    const int may = is_undecided(s, k);
    const int is_full = count_held(s) == s->config.max_loading;
    if (wait == 14) {
        require(kvp_sched_skip_load(s->sched, k->handle) == (may ? KVP_OK : KVP_E_STATE));
        k->is_decided |= may;
        return;
    }
    const kvp_status status = kvp_sched_hold(s->sched, k->handle, deadline);
    require(status == (!may ? KVP_E_STATE : is_full ? KVP_E_AGAIN : KVP_OK));
    if (status != KVP_OK)
        return;
    const uint64_t own = info.load_deadline;
    k->is_held = k->is_decided = 1;
    k->deadline = own != 0 && own < deadline ? own : deadline;
}

static void release(struct session *s, struct known *k)
{
    require(kvp_sched_release(s->sched, k->handle) == (k->is_held ? KVP_OK : KVP_E_STATE));
    k->is_held = 0;
}

static void tick(struct session *s, uint64_t now)
{
    kvp_sched_expired expired;
    uint64_t next = UINT64_MAX;
    require(kvp_sched_tick(s->sched, now, &expired) == KVP_OK);
    for (uint32_t i = 0; i < expired.n_requests; i++) {
        struct known *k = find(s, expired.requests[i]);
        require(k != NULL && k->is_held && k->deadline <= now);
        k->is_held = 0;
    }
    for (uint32_t i = 0; i < MAX_REQUESTS; i++) {
        const struct known *k = &s->known[i];
        require(!k->is_here || !k->is_held || k->deadline > now);
        if (k->is_here && k->is_held && k->deadline < next)
            next = k->deadline;
    }
    require(expired.next_deadline == next && expired.n_loading == count_held(s));
}

/* Exactly those of the first waiting ones that nothing is decided about, in rank. */
static void list_loadable(struct session *s)
{
    kvp_request listed[MAX_REQUESTS];
    uint32_t n;
    uint32_t n_undecided = 0;
    require(kvp_sched_loadable(s->sched, MAX_REQUESTS, listed, &n) == KVP_OK);
    for (uint32_t i = 0; i < MAX_REQUESTS; i++)
        n_undecided += s->known[i].is_here && is_undecided(s, &s->known[i]);
    require(n == n_undecided);
    for (uint32_t i = 0; i < n; i++) {
        const struct known *k = find(s, listed[i]);
        require(k != NULL && is_undecided(s, k));
        require(i == 0 || ranks_before(find(s, listed[i - 1]), k));
    }
}

/* `what` 0..63. */
static void call_loading(struct session *s, uint32_t what)
{
    struct known *k = what < 48 ? choose(s) : NULL;
    if (what >= 48) {
        s->now += what % 8;
        list_loadable(s);
        tick(s, what == 63 ? s->now / 2 : s->now);
    } else if (k != NULL && what < 32) {
        hold_or_skip(s, k, what % 16);
    } else if (k != NULL) {
        release(s, k);
    }
}

static void run_call(struct session *s)
{
    const uint32_t byte = take(s, 256);
    const uint32_t call = byte % 32;
    struct known *k;
    if (s->config.max_loading > 0 && byte >= 192) {
        call_loading(s, byte - 192);
    } else if (call < 10) {
        make_step(s);
    } else if (call < 20) {
        finish(s);
    } else if (call < 25) {
        submit(s);
    } else if (call == 25) {
        if (s->is_out)
            fail_work(s);
        require(kvp_sched_fail(s->sched) == (s->is_out ? KVP_OK : KVP_E_STATE));
        s->is_out = 0;
    } else if (call == 26) {
        if (take(s, 2))
            renew_namespace(s);
        else
            require(kvp_ns_flush(s->cache, s->ns) == KVP_OK);
    } else if (call == 27) {
        if (take(s, 2))
            use_own(s);
        else
            step_own(s);
    } else if ((k = choose(s)) != NULL) {
        if (call == 28)
            cancel(s, k);
        else if (call == 31)
            reorder(s, k);
        else
            pause_or_resume(s, k, call == 29);
    }
    check(s);
}

/* --------------------------------------------------------------------------------------- end */

static void drain(struct session *s)
{
    if (s->own.bits != 0)
        use_own(s);
    if (s->is_out)
        finish(s);
    if (s->own_step != 0)
        step_own(s);
    for (uint32_t i = 0; i < MAX_REQUESTS; i++) {
        if (s->known[i].is_here)
            pause_or_resume(s, &s->known[i], 0);
    }
    tick(s, UINT64_MAX);
    uint32_t n_steps = 0;
    while (s->n_over < s->n_submitted) {
        require(n_steps++ < DRAIN_STEPS);
        make_step(s);
        if (s->is_out)
            finish(s);
        check(s);
    }
    kvp_stats stats;
    kvp_sched_stats sched_stats;
    make_step(s); /* what sequences of our own left in the plan */
    require(kvp_cache_stats_get(s->cache, &stats) == KVP_OK);
    require(stats.held_blocks == 0 && stats.open_seqs == 0 && stats.host_held_blocks == 0);
    require(kvp_sched_stats_get(s->sched, &sched_stats) == KVP_OK);
    require(sched_stats.reserved_pages == 0 && sched_stats.promised_blocks == 0);
    require(sched_stats.submitted == s->n_submitted);
    require(sched_stats.ended + sched_stats.aborted == s->n_over);
    require(sched_stats.running_seqs == 0 && sched_stats.swapped_seqs == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct session s;
    memset(&s, 0, sizeof s);
    s.at = data;
    s.end = data + size;
    if (begin(&s)) {
        for (uint32_t i = 0; i < MAX_CALLS && s.at < s.end; i++) {
            run_call(&s);
            for (uint32_t j = 0; j < MAX_REQUESTS; j++) {
                if (s.known[j].is_here)
                    check_known(&s, &s.known[j]);
            }
        }
        drain(&s);
    }
    kvp_sched_destroy(s.sched);
    kvp_cache_destroy(s.cache);
    sched_memory_destroy(&s.memory);
    return 0;
}
