/* adapter_case.h - what the tests of adapters share: bases and adapters in the scratch folder (data_files.h), by name, and
 * what models make of them. */
#ifndef DSMOE_TESTS_ADAPTER_CASE_H
#define DSMOE_TESTS_ADAPTER_CASE_H

#include "data_files.h"
#include "made_adapter.h"
#include "scratch.h"
#include "support.h"

enum { N_TOKENS = 70, RANK = 3 };
static const double scale = 0.5;

/* made_config in float32. */
made_model base_folder(const char *name);
dsmoe_adapter *open_adapter(const char *name, const dsmoe_model *model);
/* Of four sequences, on two threads; `scales` may be NULL. */
dsmoe_engine *open_engine(const dsmoe_model *model, dsmoe_adapter *const *adapters, int n,
                          const double *scales);
/* Logits of the model in a folder or file after some tokens, with an adapter in one or without (NULL). */
floats run(const char *model_name, const char *adapter_name, double factor);
double distance(floats a, floats b);

void convert_to(const char *from, const char *to, const char *type);
void merge_to(const char *base, const char *change, double factor, const char *to,
              const char *type);
void convert_adapter(const char *base, const char *from, const char *to);
/* Of the matrices whose names have the word in them, of rank RANK and with that scale. */
made_adapter adapter_folder(const char *name, const made_model *base, const char *word, bool zeros,
                            uint64_t seed);

#define TEST(name) cmocka_unit_test_setup_teardown(name, empty_directory, clear_directory)

#endif
