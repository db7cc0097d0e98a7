/* kvpager/kvpager.hpp: owners and spans for C++17, over the C interface. Header only.
 *
 *   auto made = kvpager::Cache::create(kvpager::make_config());
 *   if (!made) return made.status();
 *   kvpager::Cache cache = std::move(*made);                    declared first: it goes last
 *   auto model = cache.open_namespace("llama-8b");
 *   auto opened = model->open(kvpager::make_prompt(tokens));
 *   kvpager::Sequence seq = std::move(opened->sequence);
 *   ... run the prompt's tokens from opened->info.cached_tokens on ...
 *   if (!seq.commit(n)) ...                                     closed at the end of the scope
 *
 * The C headers say what each call does, takes and costs. This file adds who owns what:
 *
 *   - Cache, Namespace, Sequence and Scheduler own one object each. They are moved, never copied. A
 *     default or moved-from owner is empty, and each call on it is KVP_E_ARG. Assigning to an owner
 *     ends what it had.
 *   - A cache must outlive its namespaces, sequences and schedulers: declare it before them. Moving
 *     its owner moves nothing in memory. A sequence may outlive its namespace.
 *   - release() hands the object over, and the constructor with the same arguments takes it back.
 *     Sequences of a scheduler are the scheduler's: give their handles to no owner.
 *   - A destructor ignores the status. If another call is inside the cache (KVP_E_BUSY), the
 *     sequence or namespace stays open. close() returns the status, and keeps what is still open.
 *   - Spans that a call gives point into the cache, until the next call that changes it.
 *
 * Threads. Const members may run beside each other, Cache::stats and Sequence::info also beside a
 * change. All others, and destructors, need exclusive access to the cache. An owner is an ordinary
 * object: do not move it while another thread uses it.
 *
 * Errors. Nothing throws. An expected has a value, or the status that says why there is none.
 * Reading the value of a failed call ends the program (std::abort) in every build. A span of more
 * than 2^32 - 1 elements is KVP_E_ARG, and so are spans whose lengths do not fit together. Calls
 * that are missing here take Cache::get() and handle().
 */
#ifndef KVPAGER_HPP
#define KVPAGER_HPP

#include "kvpager.h"
#if __has_include(<kvpager/sched.h>) && !defined(KVPAGER_SCHED_H)
#include <kvpager/sched.h>
#endif

#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

namespace kvpager {

/* --------------------------------------------------------------------------- spans and outcomes */

/* A view of elements that something else owns: a vector, an array, a string or another span. */
template <class T> class span {
  public:
    constexpr span() noexcept = default;
    constexpr span(T *data, std::size_t size) noexcept : data_(data), size_(size) {}
    template <class C, class E = std::remove_pointer_t<decltype(std::data(std::declval<C &>()))>,
              class = std::enable_if_t<std::is_convertible_v<E (*)[], T (*)[]>>>
    constexpr span(C &&container) noexcept
        : data_(std::data(container)), size_(std::size(container))
    {
    }

    constexpr T *data() const noexcept { return data_; }
    constexpr std::size_t size() const noexcept { return size_; }
    constexpr bool empty() const noexcept { return size_ == 0; }
    /* The size for a C call, if it fits what they count with. */
    constexpr bool fits() const noexcept { return size_ <= UINT32_MAX; }
    constexpr std::uint32_t n() const noexcept { return static_cast<std::uint32_t>(size_); }
    constexpr T *begin() const noexcept { return data_; }
    constexpr T *end() const noexcept { return data_ + size_; }
    constexpr T &operator[](std::size_t i) const noexcept { return data_[i]; }

  private:
    T *data_ = nullptr;
    std::size_t size_ = 0;
};

/* The outcome of a call that gives no value. */
template <class T = void> class expected;

template <> class [[nodiscard]] expected<void> {
  public:
    expected(kvp_status status) noexcept : status_(status) {}

    explicit operator bool() const noexcept { return status_ == KVP_OK; }
    kvp_status status() const noexcept { return status_; }
    const char *name() const noexcept { return kvp_status_name(status_); }
    const char *text() const noexcept { return kvp_status_text(status_); }
    int status_class() const noexcept { return kvp_status_class(status_); } /* KVP_CLASS_... */

  private:
    kvp_status status_;
};

/* A value, or why there is none. */
template <class T> class [[nodiscard]] expected : public expected<void> {
  public:
    expected(T value) : expected<void>(KVP_OK), value_(std::move(value)) {}
    /* A failure. KVP_OK without a value ends the program. */
    expected(kvp_status status) : expected<void>(status) { require(status != KVP_OK); }

    const T &operator*() const { return require(value_.has_value()), *value_; }
    T &operator*() { return require(value_.has_value()), *value_; }
    const T *operator->() const { return &**this; }
    T *operator->() { return &**this; }

  private:
    static void require(bool holds) { holds ? void() : std::abort(); }

    std::optional<T> value_;
};

namespace detail {

/* What call(args..., out) writes. */
template <class T, class Call, class... Args> expected<T> ask(Call call, Args... args)
{
    T out{};
    const kvp_status status = call(args..., &out);
    return status == KVP_OK ? expected<T>(std::move(out)) : status;
}

/* An array in the cache. */
template <class T, class Call, class... Args> expected<span<const T>> view(Call call, Args... args)
{
    const T *data = nullptr;
    std::uint32_t n = 0;
    const kvp_status status = call(args..., &data, &n);
    return status == KVP_OK ? expected<span<const T>>({data, n}) : status;
}

/* A handle and its cache. Close is called once for it. */
template <class Handle, class Close> class Held {
  public:
    Held() noexcept = default;
    Held(kvp_cache *cache, Handle handle) noexcept : cache_(cache), handle_(handle) {}
    Held(Held &&other) noexcept : cache_(other.cache_), handle_(other.release()) {}
    Held &operator=(Held &&other) noexcept
    {
        Held moved(std::move(other));
        std::swap(cache_, moved.cache_);
        std::swap(handle_, moved.handle_);
        return *this;
    }
    ~Held()
    {
        if (cache_ != nullptr)
            Close()(cache_, handle_);
    }

    Handle handle() const noexcept { return handle_; }
    bool is_open() const noexcept { return cache_ != nullptr; }
    Handle release() noexcept
    {
        cache_ = nullptr;
        return std::exchange(handle_, Handle{});
    }

  protected:
    /* After a close that the caller sees: empty, unless the object may still be open. */
    kvp_status ended(kvp_status status) noexcept
    {
        if (status == KVP_OK || status == KVP_E_HANDLE)
            release();
        return status;
    }

    kvp_cache *cache_ = nullptr;
    Handle handle_{};
};

struct CloseSeq {
    void operator()(kvp_cache *cache, kvp_seq seq) const { kvp_seq_close(cache, seq, nullptr); }
};
struct CloseNs {
    void operator()(kvp_cache *cache, kvp_ns ns) const { kvp_ns_close(cache, ns); }
};
struct Destroy {
    void operator()(kvp_cache *cache) const { kvp_cache_destroy(cache); }
};

} // namespace detail

/* -------------------------------------------------------------------- sequences and namespaces */

/* One open sequence, closed with its owner. */
class Sequence : public detail::Held<kvp_seq, detail::CloseSeq> {
  public:
    using Held::Held;

    expected<> extend(span<const std::int32_t> tokens, std::uint32_t reserve_tokens = 0)
    {
        return tokens.fits()
                   ? kvp_seq_extend(cache_, handle_, tokens.data(), tokens.n(), reserve_tokens)
                   : KVP_E_ARG;
    }
    /* Room for tokens whose values fill gives later. */
    expected<> extend_unknown(std::uint32_t n_tokens, std::uint32_t reserve_tokens = 0)
    {
        return kvp_seq_extend(cache_, handle_, nullptr, n_tokens, reserve_tokens);
    }
    expected<> fill(span<const std::int32_t> tokens)
    {
        return tokens.fits() ? kvp_seq_fill(cache_, handle_, tokens.data(), tokens.n()) : KVP_E_ARG;
    }
    expected<> commit(std::uint32_t n_tokens) { return kvp_seq_commit(cache_, handle_, n_tokens); }
    expected<Sequence> fork(std::uint32_t at = KVP_END, std::uint64_t tag = 0)
    {
        const auto child = detail::ask<kvp_seq>(kvp_seq_fork, cache_, handle_, at, tag);
        return child ? expected<Sequence>(Sequence(cache_, *child)) : child.status();
    }
    expected<kvp_released> truncate(std::uint32_t n_tokens)
    {
        return detail::ask<kvp_released>(kvp_seq_truncate, cache_, handle_, n_tokens);
    }
    /* How many sequences share what was taken back, and which. An empty span: how many would. */
    expected<std::uint32_t> invalidate(std::uint32_t from, span<kvp_seq> out_seqs)
    {
        if (!out_seqs.fits())
            return KVP_E_ARG;
        return detail::ask<std::uint32_t>(kvp_seq_invalidate, cache_, handle_, from,
                                          out_seqs.data(), out_seqs.n());
    }
    /* Close now. On KVP_E_BUSY it is still open. */
    expected<kvp_released> close()
    {
        const auto released = detail::ask<kvp_released>(kvp_seq_close, cache_, handle_);
        ended(released.status());
        return released;
    }

    expected<kvp_seq_info> info() const
    {
        return detail::ask<kvp_seq_info>(kvp_seq_info_get, cache_, handle_);
    }
    /* Values of tokens, or slots, from position `from` on: as many as the span has room for. */
    expected<> tokens(std::uint32_t from, span<std::int32_t> out) const
    {
        return out.fits() ? kvp_seq_tokens(cache_, handle_, from, out.n(), out.data()) : KVP_E_ARG;
    }
    expected<> slots(std::uint32_t from, span<std::int64_t> out, std::uint32_t group = 0) const
    {
        return out.fits() ? kvp_seq_slots(cache_, handle_, group, from, out.n(), out.data())
                          : KVP_E_ARG;
    }
    /* The block table, in the cache. */
    expected<span<const std::int32_t>> row(std::uint32_t group = 0) const
    {
        return detail::view<std::int32_t>(kvp_seq_row, cache_, handle_, group);
    }
};

/* A prompt of these tokens; set other fields then. Too many for n_tokens: every call refuses it. */
inline kvp_prompt make_prompt(span<const std::int32_t> tokens)
{
    kvp_prompt prompt{};
    prompt.struct_size = tokens.fits() ? sizeof prompt : 0;
    prompt.tokens = tokens.data();
    prompt.n_tokens = tokens.n();
    return prompt;
}

struct Opened {
    Sequence sequence;
    kvp_open_info info;
};

/* One opening of a namespace, closed once, with its owner. */
class Namespace : public detail::Held<kvp_ns, detail::CloseNs> {
  public:
    using Held::Held;

    expected<Opened> open(const kvp_prompt &prompt)
    {
        kvp_seq seq{};
        const auto info = detail::ask<kvp_open_info>(kvp_seq_open, cache_, handle_, &prompt, &seq);
        return info ? expected<Opened>(Opened{Sequence(cache_, seq), *info}) : info.status();
    }
    expected<kvp_open_info> match(const kvp_prompt &prompt)
    {
        return detail::ask<kvp_open_info>(kvp_cache_match, cache_, handle_, &prompt);
    }
    expected<kvp_admission> can_open(const kvp_prompt &prompt)
    {
        return detail::ask<kvp_admission>(kvp_cache_can_open, cache_, handle_, &prompt);
    }
    expected<> flush() { return kvp_ns_flush(cache_, handle_); }
    /* Close now. On KVP_E_BUSY it is still open. */
    expected<> close() { return ended(kvp_ns_close(cache_, handle_)); }
};

/* ---------------------------------------------------------------------------------------- cache */

/* The defaults; set fields then. */
inline kvp_config make_config()
{
    kvp_config config;
    kvp_config_init(&config);
    return config;
}

class Cache {
  public:
    Cache() noexcept = default;
    explicit Cache(kvp_cache *cache) noexcept : cache_(cache) {}
    /* arena: the caller's memory, which outlives the cache; nullptr: the library maps it. */
    static expected<Cache> create(const kvp_config &config, void *arena = nullptr,
                                  std::size_t arena_bytes = 0)
    {
        const auto made = detail::ask<kvp_cache *>(kvp_cache_create, &config, arena, arena_bytes);
        return made ? expected<Cache>(Cache(*made)) : made.status();
    }

    kvp_cache *get() const noexcept { return cache_.get(); }
    kvp_cache *release() noexcept { return cache_.release(); }

    expected<Namespace> open_namespace(std::string_view name)
    {
        const auto ns = detail::ask<kvp_ns>(kvp_ns_open, get(), name.data(), name.size());
        return ns ? expected<Namespace>(Namespace(get(), *ns)) : ns.status();
    }
    /* Closes every sequence: its owner stays, and calls on it are KVP_E_HANDLE. */
    expected<> reset() { return kvp_cache_reset(get()); }
    expected<> extend_many(const kvp_batch &batch) { return kvp_seq_extend_many(get(), &batch); }
    expected<> commit_many(span<const kvp_seq> seqs, span<const std::uint32_t> n_tokens)
    {
        return seqs.size() != n_tokens.size() || !seqs.fits()
                   ? KVP_E_ARG
                   : kvp_seq_commit_many(get(), seqs.data(), n_tokens.data(), seqs.n());
    }
    /* How many copies were taken. An empty span: how many wait, and none is taken. */
    expected<std::uint32_t> take_plan(span<kvp_copy> out)
    {
        if (!out.fits())
            return KVP_E_ARG;
        return detail::ask<std::uint32_t>(kvp_plan_take, get(), out.data(), out.n());
    }
    expected<> check(int level) { return kvp_cache_check(get(), level, nullptr); }

    expected<span<const kvp_evicted>> evicted() const
    {
        return detail::view<kvp_evicted>(kvp_cache_evicted, get());
    }
    expected<kvp_stats> stats() const { return detail::ask<kvp_stats>(kvp_cache_stats_get, get()); }
    expected<kvp_shortage> shortage() const
    {
        return detail::ask<kvp_shortage>(kvp_cache_shortage_get, get());
    }

  private:
    std::unique_ptr<kvp_cache, detail::Destroy> cache_;
};

#ifdef KVPAGER_SCHED_H
class Scheduler {
  public:
    Scheduler() noexcept = default;
    explicit Scheduler(kvp_sched *sched) noexcept : sched_(sched) {}
    static expected<Scheduler> create(const kvp_sched_config &config, Cache &cache)
    {
        const auto made = detail::ask<kvp_sched *>(kvp_sched_create, &config, cache.get(), nullptr,
                                                   std::size_t{0});
        return made ? expected<Scheduler>(Scheduler(*made)) : made.status();
    }

    kvp_sched *get() const noexcept { return sched_.get(); }

    expected<kvp_request> submit(const kvp_submission &submission)
    {
        kvp_request request{};
        const kvp_status status = kvp_sched_submit(get(), &submission, &request, nullptr);
        return status == KVP_OK ? expected<kvp_request>(request) : status;
    }
    expected<> abort(kvp_request request) { return kvp_sched_abort(get(), request); }
    expected<kvp_step> step() { return detail::ask<kvp_step>(kvp_sched_step, get()); }
    /* tokens, ended: one for each that `step` samples; ended may be empty. */
    expected<kvp_step_end> finish(const kvp_step &step, span<const std::int32_t> tokens,
                                  span<const std::uint8_t> ended = {})
    {
        if (tokens.size() != step.n_sampled || (!ended.empty() && ended.size() != step.n_sampled))
            return KVP_E_ARG;
        return detail::ask<kvp_step_end>(kvp_sched_finish, get(), tokens.data(), ended.data());
    }
    /* With drafts. counts: how many tokens became known of each sequence that decodes. tokens: as
     * many of each, then one for each that the others sample. */
    expected<kvp_step_end> finish_drafts(const kvp_step &step, span<const std::int32_t> tokens,
                                         span<const std::uint32_t> counts,
                                         span<const std::uint8_t> ended = {})
    {
        std::uint64_t n_known = step.n_sampled - step.n_decoding;
        for (const std::uint32_t count : counts)
            n_known += count;
        if (counts.size() != step.n_decoding || tokens.size() != n_known ||
            (!ended.empty() && ended.size() != step.n_sampled))
            return KVP_E_ARG;
        return detail::ask<kvp_step_end>(kvp_sched_finish_drafts, get(), tokens.data(),
                                         counts.data(), ended.data());
    }
    expected<> fail() { return kvp_sched_fail(get()); }

  private:
    struct Destroy {
        void operator()(kvp_sched *sched) const { kvp_sched_destroy(sched); }
    };
    std::unique_ptr<kvp_sched, Destroy> sched_;
};
#endif

} // namespace kvpager

#endif
