/* test_owners: kvpager.hpp. Who owns what after a move; how each call can fail. */
#include <kvpager/all.h>
#include <kvpager/kvpager.hpp>

#include <array>
#include <cstdio>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

using namespace kvpager;

static int n_failed;

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                   \
            n_failed++;                                                                            \
        }                                                                                          \
    } while (0)

#define CHECK_STATUS(call, wanted) CHECK((call).status() == (wanted))

/* What the compiler must refuse, and must allow. */
template <class T> constexpr bool moves_only()
{
    return !std::is_copy_constructible_v<T> && !std::is_copy_assignable_v<T> &&
           std::is_nothrow_move_constructible_v<T> && std::is_nothrow_move_assignable_v<T> &&
           std::is_nothrow_default_constructible_v<T>;
}
static_assert(moves_only<Cache>() && moves_only<Namespace>() && moves_only<Sequence>() &&
              moves_only<Scheduler>());
static_assert(std::is_constructible_v<span<const int>, std::vector<int> &>);
static_assert(std::is_constructible_v<span<const int>, const std::array<int, 3> &>);
static_assert(std::is_constructible_v<span<const int>, int (&)[3]>);
static_assert(std::is_constructible_v<span<const int>, span<int>>);
static_assert(!std::is_constructible_v<span<int>, const std::vector<int> &>);
static_assert(!std::is_constructible_v<span<int>, span<const int>>);
static_assert(!std::is_constructible_v<span<int>, std::vector<short> &>);
static_assert(!std::is_convertible_v<expected<>, bool> &&
              !std::is_convertible_v<expected<int>, bool>);

static Cache make_cache()
{
    kvp_config config = make_config();
    config.block_tokens = 4;
    config.n_blocks = 9; /* 8 usable */
    config.max_seqs = 4;
    config.max_seq_tokens = 64;
    config.max_namespaces = 2;
    auto made = Cache::create(config);
    CHECK(made);
    return std::move(*made);
}

static std::vector<std::int32_t> numbers(int n)
{
    std::vector<std::int32_t> tokens;
    for (int i = 1; i <= n; i++)
        tokens.push_back(i);
    return tokens;
}

static Sequence open_seq(Namespace &ns, int n_tokens)
{
    const auto tokens = numbers(n_tokens);
    auto opened = ns.open(make_prompt(tokens));
    CHECK(opened);
    return std::move(opened->sequence);
}

static std::uint64_t count_open(const Cache &cache)
{
    auto stats = cache.stats();
    CHECK(stats);
    return stats->open_seqs;
}

static void test_spans()
{
    std::vector<std::int32_t> tokens = numbers(3);
    span<std::int32_t> all(tokens);
    span<const std::int32_t> read = all;
    CHECK(all.size() == 3 && read.data() == tokens.data() && read[2] == 3 && !read.empty());
    all[0] = 10;
    std::int32_t sum = 0;
    for (std::int32_t token : read)
        sum += token;
    CHECK(sum == 15);
    CHECK(span<int>().empty() && span<int>().data() == nullptr);
    const char text[] = "ab";
    CHECK(span<const char>(text).size() == 3);
    CHECK(read.fits() && read.n() == 3);
    CHECK(!span<const std::int32_t>(tokens.data(), std::size_t{1} << 32).fits());
}

/* A child process that must end by SIGABRT. */
template <class F> static bool aborts(F f)
{
    const pid_t child = fork();
    if (child == 0) {
        f();
        _exit(0);
    }
    int status = 0;
    return waitpid(child, &status, 0) == child && WIFSIGNALED(status) &&
           WTERMSIG(status) == SIGABRT;
}

static void test_expected()
{
    expected<int> five(5);
    const expected<int> none(KVP_E_NO_BLOCKS);
    CHECK(five && *five == 5 && five.status() == KVP_OK);
    CHECK(!none && none.status() == KVP_E_NO_BLOCKS && none.status_class() == KVP_CLASS_RETRY);
    CHECK(std::string(none.name()) == "KVP_E_NO_BLOCKS" &&
          std::string(none.text()) == kvp_status_text(KVP_E_NO_BLOCKS));
    CHECK(aborts([&] { _exit(*none); }));
    CHECK(aborts([] { expected<int> lie(KVP_OK); }));
    CHECK(aborts([] { _exit(static_cast<int>(expected<kvp_stats>(KVP_E_ARG)->opens)); }));
}

/* A sequence: made, computed, forked, read, cut and closed. */
static void test_life()
{
    Cache cache = make_cache();
    auto ns = cache.open_namespace("model");
    CHECK(ns && ns->is_open());
    const auto tokens = numbers(10);
    CHECK(ns->match(make_prompt(tokens))->stop == KVP_STOP_MISS);
    CHECK(ns->can_open(make_prompt(tokens))->verdict == KVP_ADMIT_OK);
    Sequence seq = open_seq(*ns, 10);
    CHECK(seq.commit(10));
    {
        auto child = seq.fork(8, 77);
        CHECK(child && child->info()->tag == 77 && child->info()->n_tokens == 8);
        CHECK(count_open(cache) == 2);
        std::array<kvp_seq, 4> sharing{};
        CHECK(*seq.invalidate(8, sharing) == 0);
        CHECK(*seq.invalidate(0, span<kvp_seq>()) == 1); /* asks only */
        CHECK(seq.info()->computed_tokens == 8);
    }
    CHECK(count_open(cache) == 1);
    CHECK(seq.extend({}) && seq.commit(10));
    CHECK(seq.extend(numbers(1), 1) && seq.extend_unknown(1));
    CHECK(seq.fill(numbers(1)) && seq.commit(12));
    CHECK(seq.row()->size() == 3 && (*seq.row())[0] == 1);
    std::array<std::int32_t, 2> read{};
    CHECK(seq.tokens(9, read) && read[0] == 10 && read[1] == 1);
    std::array<std::int64_t, 2> slots{};
    CHECK(seq.slots(10, slots) && slots[0] == KVP_NO_SLOT);
    CHECK(seq.truncate(4)->cached_blocks == 2);
    const auto released = seq.close();
    CHECK(released && released->cached_blocks == 1 && !seq.is_open());
    CHECK(cache.check(3) && ns->flush() && ns->close() && !ns->is_open());
}

/* Whoever has the object last ends it; an owner that lost it can do nothing. */
static void test_moves()
{
    Cache first = make_cache();
    kvp_cache *raw = first.get();
    auto opened = first.open_namespace("model");
    Namespace ns = std::move(*opened);
    CHECK(!opened->is_open() && ns.is_open() && opened->handle().bits == 0);
    Sequence a = open_seq(ns, 4);
    Sequence b = open_seq(ns, 8);
    const kvp_seq handle_a = a.handle();
    const kvp_seq handle_b = b.handle();
    kvp_seq_info info;

    Cache cache = std::move(first); /* the others stay valid */
    CHECK(cache.get() == raw && first.get() == nullptr && a.info());
    CHECK_STATUS(first.stats(), KVP_E_ARG);

    b = std::move(a); /* what b had is closed, once */
    CHECK(count_open(cache) == 1 && b.handle().bits == handle_a.bits && !a.is_open());
    CHECK(kvp_seq_info_get(raw, handle_b, &info) == KVP_E_HANDLE);
    Sequence &same = b;
    b = std::move(same);
    CHECK(b.is_open() && b.handle().bits == handle_a.bits && count_open(cache) == 1);

    const kvp_seq released = b.release(); /* nobody closes it now */
    CHECK(!b.is_open() && released.bits == handle_a.bits);
    b = Sequence();
    CHECK(count_open(cache) == 1);
    {
        Sequence taken_back(raw, released);
        CHECK(taken_back.info());
    }
    CHECK(count_open(cache) == 0);

    std::vector<Sequence> many;
    for (int i = 0; i < 4; i++)
        many.push_back(open_seq(ns, 4)); /* moved as the vector grows */
    CHECK(count_open(cache) == 4);
    many.erase(many.begin());
    CHECK(count_open(cache) == 3);
    many.clear();
    CHECK(count_open(cache) == 0);

    Sequence outlives = open_seq(ns, 4);
    CHECK(ns.close() && outlives.commit(4) && outlives.close());
    Cache handed_on(cache.release());
    CHECK(cache.get() == nullptr && handed_on.get() == raw);
}

/* Every call on an owner that has nothing. */
static void test_empty()
{
    Cache cache;
    Namespace ns;
    Sequence seq;
    std::array<std::int32_t, 1> token{};
    std::array<std::int64_t, 1> slot{};
    std::array<kvp_copy, 1> copy{};
    std::array<kvp_seq, 1> handles{};
    const std::array<std::uint32_t, 1> counts{};
    CHECK_STATUS(cache.open_namespace("x"), KVP_E_ARG);
    CHECK_STATUS(cache.reset(), KVP_E_ARG);
    CHECK_STATUS(cache.extend_many(kvp_batch{}), KVP_E_ARG);
    CHECK_STATUS(cache.commit_many(handles, counts), KVP_E_ARG);
    CHECK_STATUS(cache.take_plan(copy), KVP_E_ARG);
    CHECK_STATUS(cache.check(1), KVP_E_ARG);
    CHECK_STATUS(cache.evicted(), KVP_E_ARG);
    CHECK_STATUS(cache.stats(), KVP_E_ARG);
    CHECK_STATUS(cache.shortage(), KVP_E_ARG);
    CHECK_STATUS(ns.open(make_prompt(token)), KVP_E_ARG);
    CHECK_STATUS(ns.match(make_prompt(token)), KVP_E_ARG);
    CHECK_STATUS(ns.can_open(make_prompt(token)), KVP_E_ARG);
    CHECK_STATUS(ns.flush(), KVP_E_ARG);
    CHECK_STATUS(ns.close(), KVP_E_ARG);
    CHECK_STATUS(seq.extend(token), KVP_E_ARG);
    CHECK_STATUS(seq.extend_unknown(1), KVP_E_ARG);
    CHECK_STATUS(seq.fill(token), KVP_E_ARG);
    CHECK_STATUS(seq.commit(0), KVP_E_ARG);
    CHECK_STATUS(seq.fork(), KVP_E_ARG);
    CHECK_STATUS(seq.truncate(0), KVP_E_ARG);
    CHECK_STATUS(seq.invalidate(0, handles), KVP_E_ARG);
    CHECK_STATUS(seq.close(), KVP_E_ARG);
    CHECK_STATUS(seq.info(), KVP_E_ARG);
    CHECK_STATUS(seq.tokens(0, token), KVP_E_ARG);
    CHECK_STATUS(seq.slots(0, slot), KVP_E_ARG);
    CHECK_STATUS(seq.row(), KVP_E_ARG);
    Scheduler sched;
    CHECK_STATUS(sched.submit(kvp_submission{}), KVP_E_ARG);
    CHECK_STATUS(sched.abort(kvp_request{}), KVP_E_ARG);
    CHECK_STATUS(sched.step(), KVP_E_ARG);
    CHECK_STATUS(sched.finish(kvp_step{}, {}), KVP_E_ARG);
    CHECK_STATUS(sched.finish_drafts(kvp_step{}, {}, {}), KVP_E_ARG);
    CHECK_STATUS(sched.fail(), KVP_E_ARG);
}

/* 2^32 elements: more than a count of the C calls can say. Nothing may be read there. */
static void test_too_long(Namespace &ns, Cache &cache, Sequence &seq)
{
    constexpr std::size_t n = (std::size_t{1} << 32) + 1;
    std::int32_t token = 1;
    std::int64_t slot = 0;
    kvp_seq handle = seq.handle();
    std::uint32_t count = 4;
    kvp_copy copy{};
    const kvp_prompt prompt = make_prompt({&token, n});
    CHECK_STATUS(ns.open(prompt), KVP_E_ARG);
    CHECK_STATUS(ns.match(prompt), KVP_E_ARG);
    CHECK_STATUS(ns.can_open(prompt), KVP_E_ARG);
    CHECK_STATUS(seq.extend({&token, n}), KVP_E_ARG);
    CHECK_STATUS(seq.fill({&token, n}), KVP_E_ARG);
    CHECK_STATUS(seq.invalidate(4, {&handle, n}), KVP_E_ARG);
    CHECK_STATUS(seq.tokens(0, {&token, n}), KVP_E_ARG);
    CHECK_STATUS(seq.slots(0, {&slot, n}), KVP_E_ARG);
    CHECK_STATUS(cache.take_plan({&copy, n}), KVP_E_ARG);
    CHECK_STATUS(cache.commit_many({&handle, n}, {&count, n}), KVP_E_ARG);
    CHECK_STATUS(cache.commit_many({&handle, 1}, {}), KVP_E_ARG);
    CHECK(cache.commit_many({&handle, 1}, {&count, 1}));
}

static void test_refusals()
{
    kvp_config config = make_config();
    alignas(64) static std::array<unsigned char, 64> arena;
    CHECK_STATUS(Cache::create(config, arena.data(), arena.size()), KVP_E_TOO_SMALL);
    config.block_tokens = 0;
    CHECK_STATUS(Cache::create(config), KVP_E_ARG);
    config = make_config();
    config.host_blocks = 9;
    config.keep_evicted = KVP_EVICTED_KEEP_ONCE;
    CHECK(Cache::create(config));
    config.max_loads = 1;
    CHECK_STATUS(Cache::create(config), KVP_E_ARG);

    Cache cache = make_cache();
    CHECK_STATUS(cache.open_namespace(std::string(256, 'x')), KVP_E_ARG);
    auto ns = cache.open_namespace("a");
    auto other = cache.open_namespace("b");
    CHECK_STATUS(cache.open_namespace("c"), KVP_E_NO_NAMESPACES);
    CHECK_STATUS(ns->open(make_prompt(numbers(65))), KVP_E_TOO_LONG);
    CHECK_STATUS(ns->open(make_prompt(numbers(40))), KVP_E_NEVER);
    CHECK(cache.shortage()->status == KVP_E_NEVER && cache.shortage()->missing_blocks == 2);
    CHECK_STATUS(ns->match(make_prompt(numbers(65))), KVP_E_TOO_LONG);
    CHECK_STATUS(ns->can_open(make_prompt(numbers(65))), KVP_E_TOO_LONG);

    Sequence seq = open_seq(*ns, 8);
    test_too_long(*ns, cache, seq);
    CHECK_STATUS(other->open(make_prompt(numbers(28))), KVP_E_NO_BLOCKS);
    CHECK_STATUS(seq.extend(numbers(28)), KVP_E_NEVER);
    CHECK_STATUS(seq.extend_unknown(100), KVP_E_TOO_LONG);
    CHECK_STATUS(seq.fill(numbers(1)), KVP_E_STATE);
    CHECK_STATUS(seq.commit(9), KVP_E_ARG);
    CHECK_STATUS(seq.fork(), KVP_E_STATE);
    CHECK_STATUS(seq.truncate(9), KVP_E_ARG);
    CHECK_STATUS(seq.row(1), KVP_E_ARG);
    std::array<std::int32_t, 9> tokens{};
    std::array<std::int64_t, 9> slots{};
    CHECK_STATUS(seq.tokens(0, tokens), KVP_E_ARG);
    CHECK_STATUS(seq.slots(0, slots), KVP_E_ARG);
    CHECK_STATUS(cache.check(4), KVP_E_ARG);
    kvp_batch batch{};
    batch.struct_size = sizeof batch;
    const kvp_seq twice[] = {seq.handle(), seq.handle()};
    batch.seqs = twice;
    batch.n_seqs = 2;
    CHECK_STATUS(cache.extend_many(batch), KVP_E_ARG);
    batch.n_seqs = 1;
    CHECK(cache.extend_many(batch) && seq.info()->n_tokens == 9);

    CHECK(cache.reset()); /* sequences are gone, namespaces stay */
    CHECK_STATUS(seq.info(), KVP_E_HANDLE);
    CHECK_STATUS(seq.extend(numbers(1)), KVP_E_HANDLE);
    CHECK(seq.is_open());
    CHECK_STATUS(seq.close(), KVP_E_HANDLE);
    CHECK(!seq.is_open() && ns->flush());
}

static void test_plan_and_evicted()
{
    Cache cache = make_cache();
    auto ns = cache.open_namespace("a");
    std::vector<Sequence> forks;
    forks.push_back(open_seq(*ns, 6));
    CHECK(forks[0].commit(6));
    for (int i = 0; i < 3; i++) {
        auto child = forks[0].fork();
        CHECK(child && child->extend(numbers(1)));
        forks.push_back(std::move(*child));
    }
    CHECK_STATUS(forks[0].fork(), KVP_E_NO_SEQS);
    std::array<kvp_copy, 4> copies{};
    CHECK(*cache.take_plan({}) == 3);
    CHECK_STATUS(cache.take_plan({copies.data(), 2}), KVP_E_TOO_SMALL);
    CHECK(*cache.take_plan(copies) == 3 && copies[0].n_tokens == 2 && *cache.take_plan({}) == 0);
    forks.clear();
    CHECK(cache.evicted()->empty());
    auto other = cache.open_namespace("b");
    Sequence all = open_seq(*other, 32);
    CHECK(cache.evicted()->size() == 1 && (*cache.evicted())[0].block == 1);
}

/* A call from inside another one: closing is refused, and nothing is lost. */
struct Inside {
    Sequence *seq = nullptr;
    Namespace *ns = nullptr;
    kvp_seq left{};
    kvp_cache *cache = nullptr;
};

static int write_inside(void *context, const void *, std::size_t)
{
    auto *inside = static_cast<Inside *>(context);
    if (inside->seq != nullptr) {
        CHECK_STATUS(inside->seq->close(), KVP_E_BUSY);
        CHECK_STATUS(inside->ns->close(), KVP_E_BUSY);
        CHECK(inside->seq->is_open() && inside->ns->is_open());
        Sequence given_up(inside->cache, inside->left); /* its destructor cannot close it */
    }
    return 0;
}

static void test_busy()
{
    Cache cache = make_cache();
    Inside inside;
    const kvp_sink sink = {&inside, write_inside};
    CHECK(kvp_cache_record_start(cache.get(), &sink) == KVP_OK);
    auto ns = cache.open_namespace("a");
    Sequence seq = open_seq(*ns, 4);
    Sequence other = open_seq(*ns, 8);
    inside.cache = cache.get();
    inside.left = other.release();
    inside.ns = &*ns;
    inside.seq = &seq;
    CHECK(seq.commit(4));
    inside.seq = nullptr;
    CHECK(count_open(cache) == 2);
    CHECK(seq.close() && Sequence(cache.get(), inside.left).close() && ns->close());
    CHECK(count_open(cache) == 0);
}

static void test_scheduler()
{
    Cache cache = make_cache();
    auto ns = cache.open_namespace("a");
    kvp_sched_config config;
    kvp_sched_config_init(&config);
    auto made = Scheduler::create(config, cache);
    CHECK(made);
    Scheduler sched = std::move(*made);
    CHECK(made->get() == nullptr);
    config.max_requests = 0;
    CHECK_STATUS(Scheduler::create(config, cache), KVP_E_ARG);

    CHECK_STATUS(sched.submit(kvp_submission{}), KVP_E_ARG);
    const auto tokens = numbers(6);
    const kvp_prompt prompt = make_prompt(tokens);
    kvp_submission submission{};
    submission.struct_size = sizeof submission;
    submission.prompt = &prompt;
    submission.ns = ns->handle();
    submission.max_new_tokens = 2;
    auto request = sched.submit(submission);
    auto step = sched.step();
    CHECK(request && step && step->n_tokens == 6 && step->n_sampled == 1);
    CHECK_STATUS(sched.step(), KVP_E_STATE);
    const std::array<std::int32_t, 2> sampled = {7, 8};
    const std::array<std::uint8_t, 2> ended = {1, 1};
    CHECK_STATUS(sched.finish(*step, sampled), KVP_E_ARG);
    CHECK_STATUS(sched.finish(*step, {sampled.data(), 1}, ended), KVP_E_ARG);
    CHECK(sched.finish(*step, {sampled.data(), 1})->n_ended == 0);
    step = sched.step();
    CHECK(step && step->n_tokens == 1 && sched.fail());
    CHECK_STATUS(sched.fail(), KVP_E_STATE);
    CHECK(sched.abort(*request));
    CHECK_STATUS(sched.abort(*request), KVP_E_HANDLE);

    CHECK(sched.submit(submission));
    step = sched.step();
    const auto end = sched.finish(*step, {sampled.data(), 1}, {ended.data(), 1});
    CHECK(end && end->n_ended == 1 && end->ended[0].reason == KVP_END_STOPPED);
    CHECK(sched.submit(submission) && sched.step() && count_open(cache) == 1);
    sched = Scheduler(); /* aborts what is there */
    CHECK(count_open(cache) == 0);
}

/* Two requests decode with up to two drafts each: one of the first one's is accepted, none of the
 * second one's. A third one samples behind its prompt. */
static void test_drafts()
{
    Cache cache = make_cache();
    auto ns = cache.open_namespace("a");
    kvp_sched_config config;
    kvp_sched_config_init(&config);
    config.draft_tokens = 2;
    auto made = Scheduler::create(config, cache);
    CHECK(made);
    Scheduler sched = std::move(*made);
    const auto text = numbers(6);
    const kvp_prompt prompt = make_prompt(text);
    kvp_submission submission{};
    submission.struct_size = sizeof submission;
    submission.prompt = &prompt;
    submission.ns = ns->handle();
    submission.max_new_tokens = 5;
    CHECK(sched.submit(submission) && sched.submit(submission));
    auto step = sched.step();
    const std::array<std::int32_t, 4> tokens = {21, 22, 23, 24};
    CHECK(step && step->n_decoding == 0 && step->n_sampled == 2);
    CHECK(sched.finish_drafts(*step, {tokens.data(), 2}, {})); /* as finish */
    CHECK(sched.submit(submission));
    step = sched.step();
    CHECK(step && step->n_decoding == 2 && step->n_drafts == 4 && step->n_sampled == 3);

    const std::array<std::uint32_t, 2> counts = {2, 1}, too_many = {4, 1};
    const std::array<std::uint8_t, 3> ended = {0, 1, 0};
    CHECK_STATUS(sched.finish_drafts(*step, {tokens.data(), 3}, counts), KVP_E_ARG);
    CHECK_STATUS(sched.finish_drafts(*step, tokens, {counts.data(), 1}), KVP_E_ARG);
    CHECK_STATUS(sched.finish_drafts(*step, tokens, counts, {ended.data(), 2}), KVP_E_ARG);
    CHECK_STATUS(sched.finish_drafts(*step, numbers(6), too_many), KVP_E_ARG);
    const kvp_seq first = step->seqs[0].seq;
    const auto end = sched.finish_drafts(*step, tokens, counts, ended);
    CHECK(end && end->n_ended == 1 && end->ended[0].reason == KVP_END_STOPPED);
    kvp_seq_info info;
    CHECK(kvp_seq_info_get(cache.get(), first, &info) == KVP_OK && info.computed_tokens == 8);
}

int main()
{
    test_spans();
    test_expected();
    test_life();
    test_moves();
    test_empty();
    test_refusals();
    test_plan_and_evicted();
    test_busy();
    test_scheduler();
    test_drafts();
    if (n_failed == 0)
        std::printf("test_owners: all as it should be\n");
    return n_failed == 0 ? 0 : 1;
}
