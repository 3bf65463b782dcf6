/* endpoints_info.c - information about the server and its model: health, models, props, slots, metrics. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/clock.h"
#include "formats/json_write.h"
#include "serve/answer.h"
#include "serve/server_parts.h"

static void refuse(http_exchange *exchange, int status, const char *message)
{
    request_error error = {0};
    request_refuse(&error, status, "", "%s", message);
    answer_refuse(exchange, &error);
}

void endpoint_health(server *s, http_exchange *exchange)
{
    if (atomic_load(&s->closed)) {
        refuse(exchange, 503, "the server is being stopped");
        return;
    }
    if (!atomic_load(&s->ready)) {
        refuse(exchange, 503, "the model is being loaded");
        return;
    }
    if (scheduler_look(s->scheduler).hangs) {
        refuse(exchange, 503, "the engine does not respond");
        return;
    }
    answer a;
    if (answer_open(&a)->out) fputs("{\"status\": \"ok\"}", a.out);
    answer_send_whole(&a, exchange, 200);
}

static void put_plan(FILE *out, const server *s, const char *total, const char *active)
{
    dsmoe_model_plan plan;
    if (dsmoe_model_plan_make(dsmoe_model_config(s->served.model), 1, &plan, NULL)) return;
    if (total) fprintf(out, "\"%s\": %" PRId64, total, plan.total);
    if (active) fprintf(out, ", \"%s\": %" PRId64, active, plan.active);
}

void endpoint_models(server *s, http_exchange *exchange)
{
    const dsmoe_config *c = dsmoe_model_config(s->served.model);
    answer a;
    if (answer_open(&a)->out) {
        fputs("{\"object\": \"list\", \"data\": [{\"id\": ", a.out);
        json_write_string(a.out, s->name);
        fprintf(a.out,
                ", \"object\": \"model\", \"created\": %" PRId64
                ", \"owned_by\": \"dsmoe\", \"meta\": {\"n_vocab\": %" PRId64
                ", \"n_ctx_train\": %" PRId64 ", \"n_embd\": %" PRId64 ", ",
                s->created, c->vocab_size, c->max_position_embeddings, c->hidden_size);
        put_plan(a.out, s, "n_params", NULL);
        fprintf(a.out, ", \"size\": %zu}}]}", dsmoe_model_memory_size(s->served.model).mapped);
    }
    answer_send_whole(&a, exchange, 200);
}

static void put_number(FILE *out, const char *name, double value)
{
    fprintf(out, "\"%s\": ", name);
    json_write_number(out, value);
}

static void put_settings(FILE *out, const dsmoe_sampler_options *o)
{
    const struct {
        const char *name;
        double value;
    } settings[] = {
        {"temperature", o->temperature},
        {"top_k", (double)o->top_k},
        {"top_p", o->top_p},
        {"min_p", o->min_p},
        {"repeat_penalty", o->repeat_penalty},
        {"repeat_last_n", (double)o->repeat_last_n},
        {"presence_penalty", o->presence_penalty},
        {"frequency_penalty", o->frequency_penalty},
    };
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        if (i) fputs(", ", out);
        put_number(out, settings[i].name, settings[i].value);
    }
}

/* The text of a special token; null if there is none. */
static void put_token(FILE *out, const char *name, const dsmoe_tokenizer *t, int32_t id)
{
    size_t length = 0;
    const char *piece = t && id >= 0 ? dsmoe_tokenizer_piece(t, id, &length) : NULL;
    fprintf(out, ", \"%s\": ", name);
    if (piece)
        json_write_text(out, piece, length);
    else
        fputs("null", out);
}

void endpoint_props(server *s, http_exchange *exchange)
{
    scheduler_view view = scheduler_look(s->scheduler);
    const dsmoe_config *c = dsmoe_model_config(s->served.model);
    routing_shape shape = routing_shape_of(c);
    const dsmoe_tokenizer *t = s->served.tokenizer;
    answer a;
    if (answer_open(&a)->out) {
        fputs("{\"model\": ", a.out);
        json_write_string(a.out, s->name);
        fputs(", \"model_path\": ", a.out);
        json_write_string(a.out, s->o.model_path);
        fprintf(a.out, ", \"version\": \"%s\", \"n_ctx\": %" PRId64 ", \"total_slots\": %" PRId64,
                dsmoe_version(), view.n_ctx, view.n_slots);
        fputs(", \"chat_template\": ", a.out);
        if (s->served.converses)
            json_write_string(a.out, dsmoe_chat_form_name(s->served.chat_form));
        else
            fputs("null", a.out);
        put_token(a.out, "bos_token", t, t ? dsmoe_tokenizer_bos(t) : -1);
        put_token(a.out, "eos_token", t, t ? dsmoe_tokenizer_eos(t) : -1);
        fputs(", \"default_generation_settings\": {", a.out);
        put_settings(a.out, &s->served.sampling);
        fprintf(a.out,
                "}, \"moe\": {\"n_layers\": %" PRId64 ", \"first_layer\": %" PRId64
                ", \"n_routed_experts\": %" PRId64 ", \"num_experts_per_tok\": %" PRId64
                ", \"n_shared_experts\": %" PRId64 "}, \"parameters\": {",
                shape.n_layers, shape.first_layer, c->n_routed_experts, c->num_experts_per_tok,
                c->n_shared_experts);
        put_plan(a.out, s, "total", "active");
        fputs("}}", a.out);
    }
    answer_send_whole(&a, exchange, 200);
}

void endpoint_slots(server *s, http_exchange *exchange)
{
    static const char *const states[] = {[TEXT_WAITS] = "idle",
                                         [TEXT_READS] = "prompt",
                                         [TEXT_WRITES] = "decode",
                                         [TEXT_ENDED] = "idle"};
    scheduler_view view = scheduler_look(s->scheduler);
    scheduler_slot *slots = calloc((size_t)view.n_slots, sizeof *slots);
    if (!slots) {
        refuse(exchange, 503, "not enough memory");
        return;
    }
    scheduler_slots(s->scheduler, slots, view.n_slots);
    answer a;
    answer_open(&a);
    for (int64_t i = 0; a.out && i < view.n_slots; i++)
        fprintf(a.out,
                "%s{\"id\": %" PRId64
                ", \"state\": \"%s\", \"is_processing\": %s, \"n_ctx\": %" PRId64
                ", \"n_prompt\": %" PRId64 ", \"n_prompt_done\": %" PRId64
                ", \"n_cached\": %" PRId64 ", \"n_decoded\": %" PRId64 "}%s",
                i ? ", " : "[", i, slots[i].paused ? "paused" : states[slots[i].state],
                slots[i].state == TEXT_READS || slots[i].state == TEXT_WRITES ? "true" : "false",
                view.n_ctx, slots[i].n_prompt, slots[i].n_read, slots[i].n_cached,
                slots[i].n_written, i == view.n_slots - 1 ? "]" : "");
    free(slots);
    answer_send_whole(&a, exchange, 200);
}

void endpoint_metrics(server *s, http_exchange *exchange)
{
    scheduler_view view = scheduler_look(s->scheduler);
    const metrics_gauges gauges = {view.n_running,           view.n_waiting,
                                   view.engine.n_pages,      view.engine.n_pages_used,
                                   view.engine.n_pages_kept, http_server_connections(s->http)};
    const char *paths[METRICS_ENDPOINTS];
    for (int i = 0; i < n_endpoints; i++) paths[i] = endpoints[i].path;
    paths[n_endpoints] = "other";
    char *page = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&page, &length);
    if (out) metrics_write(&s->metrics, &gauges, paths, n_endpoints + 1, clock_seconds(), out);
    if (!out || fclose(out) != 0)
        refuse(exchange, 503, "not enough memory");
    else
        http_answer(exchange, 200, "text/plain; version=0.0.4; charset=utf-8", page, length);
    free(page);
}
