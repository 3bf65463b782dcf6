/* adapter_case.h - what the tests of adapters share: base models and adapters by name in the scratch
 * folder (data_files.h), and the logits that models compute with them. */
#ifndef DSMOE_TESTS_ADAPTER_CASE_H
#define DSMOE_TESTS_ADAPTER_CASE_H

#include "data_files.h"
#include "made_adapter.h"
#include "scratch.h"
#include "support.h"

enum { N_TOKENS = 70, RANK = 3 };
static const double scale = 0.5;

/* Writes the model of made_config in float32. */
made_model base_folder(const char *name);
dsmoe_adapter *open_adapter(const char *name, const dsmoe_model *model);
/* An engine for four sequences on two threads; `scales` may be NULL. */
dsmoe_engine *open_engine(const dsmoe_model *model, dsmoe_adapter *const *adapters, int n,
                          const double *scales);
/* Logits after some tokens of the model in a folder or file, with the adapter in a folder or without one
 * (NULL). */
floats run(const char *model_name, const char *adapter_name, double factor);
double distance(floats a, floats b);

void convert_to(const char *from, const char *to, const char *type);
void merge_to(const char *base, const char *change, double factor, const char *to,
              const char *type);
void convert_adapter(const char *base, const char *from, const char *to);
/* An adapter for the matrices whose names contain `word`, of rank RANK and with the scale above. */
made_adapter adapter_folder(const char *name, const made_model *base, const char *word, bool zeros,
                            uint64_t seed);

#define TEST(name) cmocka_unit_test_setup_teardown(name, empty_directory, clear_directory)

#endif
