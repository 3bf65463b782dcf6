/* fuzz_request.c - any bytes as the body of a request, of the kind given by the first byte: refused with a
 * status, a printable line and a JSON body, or every promise of request.h holds. */
#include "fuzz.h"

#include <string.h>

#include "base/utf8.h"
#include "formats/json.h"
#include "serve/request.h"
#include "text/tokenizer.h"

enum { CONTEXT = 64, VOCABULARY = 17 };

/* The letters of a chat template's frame, a merge and two special tokens. A text with other letters is
 * refused. */
static const char tokenizer_json[] =
    "{\"added_tokens\":[{\"id\":14,\"content\":\"<s>\",\"special\":true},"
    "{\"id\":15,\"content\":\"</s>\",\"special\":true}],"
    "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true},"
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"U\":0,\"s\":1,\"e\":2,\"r\":3,\"A\":4,\"i\":5,\"t\":6,"
    "\"n\":7,\":\":8,\"Ġ\":9,\"Ċ\":10,\"a\":11,\"b\":12,\"ab\":13},"
    "\"merges\":[\"a b\"]}}";
static const char tokenizer_config[] =
    "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\",\"add_bos_token\":true}";

static request_limits limits_of(bool with_tokenizer)
{
    static dsmoe_tokenizer *tokenizer;
    static const dsmoe_chat_form *form;
    if (!tokenizer) {
        tokenizer_text text = {tokenizer_json, strlen(tokenizer_json), "tokenizer"};
        tokenizer_text config = {tokenizer_config, strlen(tokenizer_config), "config"};
        require(tokenizer_parse(&text, &config, &tokenizer, NULL) == DSMOE_OK);
        require(dsmoe_chat_form_find(tokenizer, NULL, &form, NULL) == DSMOE_OK);
    }
    return (request_limits){.tokenizer = with_tokenizer ? tokenizer : NULL,
                            .chat_form = with_tokenizer ? form : NULL,
                            .vocab_size = VOCABULARY,
                            .n_ctx = CONTEXT,
                            .model = "fuzz",
                            .sampling = dsmoe_sampler_options_default()};
}

static void require_refusal(const request_error *error)
{
    require(error->status == 400 || error->status == 501);
    require(error->message[0] && !strcmp(error->type, request_error_type(error->status)));
    for (const char *c = error->message; *c;) {
        size_t size = utf8_character(c, strlen(c));
        require(size > 0 && (unsigned char)*c >= 0x20);
        c += size;
    }
    json_node *root = NULL;
    char *body = request_error_body(error);
    require(body && json_node_parse(body, strlen(body), "body", &root, NULL) == DSMOE_OK);
    json_node_free(root);
    free(body);
}

static void require_prompts(const request *r)
{
    require(r->n >= 1 && r->n_prompts >= 1);
    require(r->n_prompts * (size_t)r->n <= REQUEST_MAX_CHOICES);
    require(!r->routing || (r->n == 1 && r->n_prompts == 1));
    for (size_t i = 0; i < r->n_prompts; i++) {
        const request_prompt *prompt = &r->prompts[i];
        require(prompt->n_ids >= 1 && prompt->n_ids <= CONTEXT);
        require(prompt->n_ids < CONTEXT || r->max_tokens == 0);
        for (size_t j = 0; j < prompt->n_ids; j++)
            require(prompt->ids[j] >= 0 && prompt->ids[j] < VOCABULARY);
    }
}

static void require_fields(const request *r)
{
    dsmoe_sampler *sampler;
    require(dsmoe_sampler_create(&r->sampling, VOCABULARY, &sampler, NULL) == DSMOE_OK);
    dsmoe_sampler_free(sampler);
    require(r->sampling.repeat_last_n <= CONTEXT);
    require(r->max_tokens >= -1 && r->max_tokens <= INT64_C(1) << 31);
    require(r->n_top_logprobs >= 0 && r->n_top_logprobs <= DSMOE_LOGPROBS_MAX);
    require(r->n_top_logprobs == 0 || r->logprobs);
    require(!r->include_usage || r->stream);
    require(r->n_stops <= REQUEST_MAX_STOPS);
    for (size_t i = 0; i < r->n_stops; i++)
        require(r->stops[i][0] && strlen(r->stops[i]) <= REQUEST_MAX_STOP);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    if (size == 0) return 0;
    request_limits limits = limits_of(bytes[0] % 8 < 4);
    request_kind kind = (request_kind)(bytes[0] % 4);
    request r;
    request_error error;
    if (request_read(&r, kind, &limits, (const char *)bytes + 1, size - 1, &error)) {
        require(r.kind == kind);
        require_prompts(&r);
        require_fields(&r);
    } else {
        require_refusal(&error);
    }
    request_free(&r);
    return 0;
}
