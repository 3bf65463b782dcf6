/* metrics.c - the server's counters. */
#include "serve/metrics.h"

#include <inttypes.h>

#include "formats/json_write.h"

static const double seconds_bounds[METRICS_BUCKETS] = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
                                                       1,     2.5,  5,     10,   30,  60,   300};
static const double token_bounds[METRICS_BUCKETS] = {1,   2,   4,   8,    16,   32,   64,
                                                     128, 256, 512, 1024, 2048, 4096, 8192};
/* Statuses that are counted separately; the last entry, 0, is for all others. */
static const int statuses[METRICS_STATUSES] = {200, 204, 400, 401, 403, 404, 405, 408,
                                               413, 429, 499, 500, 501, 503, 504, 0};

void metrics_init(metrics *m, double now)
{
    *m = (metrics){.started_at = now};
    m->first_token.bounds = m->inter_token.bounds = m->queue.bounds = seconds_bounds;
    m->pass_tokens.bounds = token_bounds;
}

void metrics_observe(metrics_histogram *h, double value)
{
    int i = 0;
    while (i < METRICS_BUCKETS && value > h->bounds[i]) i++;
    atomic_fetch_add(&h->counts[i], 1);
    if (value > 0) atomic_fetch_add(&h->sum, (uint64_t)(value * 1e6));
}

void metrics_count_request(metrics *m, int endpoint, int status)
{
    int i = 0;
    while (i < METRICS_STATUSES - 1 && statuses[i] != status) i++;
    atomic_fetch_add(&m->requests[endpoint][i], 1);
}

/* ---- output ------------------------------------------------------------------------------------ */

static void put_head(FILE *out, const char *name, const char *type, const char *help)
{
    fprintf(out, "# HELP dsmoe_%s %s\n# TYPE dsmoe_%s %s\n", name, help, name, type);
}

static void put_counter(FILE *out, const char *name, const char *help, uint64_t value)
{
    put_head(out, name, "counter", help);
    fprintf(out, "dsmoe_%s %" PRIu64 "\n", name, value);
}

static void put_number(FILE *out, const char *name, const char *type, const char *help,
                       double value)
{
    put_head(out, name, type, help);
    fprintf(out, "dsmoe_%s ", name);
    json_write_number(out, value);
    fputc('\n', out);
}

static void put_gauge(FILE *out, const char *name, const char *help, double value)
{
    put_number(out, name, "gauge", help, value);
}

static void put_seconds(FILE *out, const char *name, const char *help, uint64_t micros)
{
    put_number(out, name, "counter", help, (double)micros / 1e6);
}

static void put_histogram(FILE *out, const char *name, const char *help, const metrics_histogram *h)
{
    uint64_t total = 0;
    put_head(out, name, "histogram", help);
    for (int i = 0; i < METRICS_BUCKETS; i++) {
        total += atomic_load(&h->counts[i]);
        fprintf(out, "dsmoe_%s_bucket{le=\"", name);
        json_write_number(out, h->bounds[i]);
        fprintf(out, "\"} %" PRIu64 "\n", total);
    }
    total += atomic_load(&h->counts[METRICS_BUCKETS]);
    fprintf(out, "dsmoe_%s_bucket{le=\"+Inf\"} %" PRIu64 "\ndsmoe_%s_sum ", name, total, name);
    json_write_number(out, (double)atomic_load(&h->sum) / 1e6);
    fprintf(out, "\ndsmoe_%s_count %" PRIu64 "\n", name, total);
}

static void put_requests(FILE *out, const metrics *m, const char *const *paths, int n_paths)
{
    put_head(out, "requests_total", "counter", "Requests answered.");
    for (int e = 0; e < n_paths; e++)
        for (int i = 0; i < METRICS_STATUSES; i++) {
            uint64_t n = atomic_load(&m->requests[e][i]);
            if (n == 0) continue;
            fprintf(out, "dsmoe_requests_total{endpoint=\"%s\",status=\"", paths[e]);
            fprintf(out, statuses[i] ? "%d" : "other", statuses[i]);
            fprintf(out, "\"} %" PRIu64 "\n", n);
        }
}

void metrics_write(const metrics *m, const metrics_gauges *g, const char *const *paths, int n_paths,
                   double now, FILE *out)
{
    put_requests(out, m, paths, n_paths);
    put_gauge(out, "requests_running", "Requests being answered.", (double)g->n_running);
    put_gauge(out, "requests_waiting", "Requests waiting for a place.", (double)g->n_waiting);
    put_gauge(out, "connections", "Open connections.", (double)g->n_connections);
    put_counter(out, "prompt_tokens_total", "Prompt tokens computed.",
                atomic_load(&m->prompt_tokens));
    put_counter(out, "cached_tokens_total", "Prompt tokens reused from earlier texts.",
                atomic_load(&m->cached_tokens));
    put_counter(out, "predicted_tokens_total", "Tokens written.",
                atomic_load(&m->predicted_tokens));
    put_seconds(out, "prompt_seconds_total",
                "Seconds from getting a place to the first token, summed over all texts.",
                atomic_load(&m->prompt_micros));
    put_seconds(out, "predicted_seconds_total",
                "Seconds from the first token to the last, summed over all texts.",
                atomic_load(&m->predicted_micros));
    put_counter(out, "passes_total", "Passes through the model.", atomic_load(&m->passes));
    put_histogram(out, "pass_tokens", "Tokens per pass.", &m->pass_tokens);
    put_histogram(out, "queue_seconds", "Seconds spent waiting for a place.", &m->queue);
    put_histogram(out, "time_to_first_token_seconds", "Seconds from a request to its first token.",
                  &m->first_token);
    put_histogram(out, "inter_token_seconds", "Seconds from one token to the next.",
                  &m->inter_token);
    put_gauge(out, "kv_pages", "Pages of keys and values.", (double)g->n_pages);
    put_gauge(out, "kv_pages_used", "Pages used by running texts.", (double)g->n_pages_used);
    put_gauge(out, "kv_pages_kept", "Pages kept for later texts with the same beginning.",
              (double)g->n_pages_kept);
    put_gauge(out, "uptime_seconds", "Seconds since the server started.", now - m->started_at);
}
