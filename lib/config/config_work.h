/* config_work - what the files of the config share. Belongs to config*.c alone. */
#ifndef DOVELANE_LIB_CONFIG_CONFIG_WORK_H
#define DOVELANE_LIB_CONFIG_CONFIG_WORK_H

#include "lib/config/config.h"

/* Of a node or a replica. */
bool config_name_ok(const char *name);
/* Of a node's site or zone, or of one that has none. */
bool config_label_ok(const char *label);

/* config_promise, as settle alone bounds it. */
int64_t config_promise_wanted(const struct config *, size_t bytes);

/* NULL, or what is wrong with it as a whole (malloc'd): naming the settings, their values and
 * the way out. */
char *config_wrong(const struct config *, const char *path);

/* The same for one node, beside those before it. */
char *config_node_wrong(const struct config *, size_t node, const char *path);

/* Writes blanks over the comments of a file's text. NULL, or the error (malloc'd): one that is
 * not closed. */
char *config_text_uncomment(const char *path, char *text);

/* NULL, or the setting that stands twice in one section, or outside of all (malloc'd). The text
 * is one that libconfuse has found good. */
char *config_text_twice(const char *path, char *text);

/* The same text with another title for each section `shape`: its own, CONFIG_TEXT_APART and a
 * number. Of two sections with one title libconfuse would forget the first. malloc'd. */
#define CONFIG_TEXT_APART "\t"
char *config_text_apart(const char *text);

/* Sections `shape`. libconfuse's checks of a word, and of a section as it ends; and all of them as
 * the lines of lib/shape/shape_rules.h, malloc'd. */
struct cfg_t;
struct cfg_opt_t;
int config_shape_check_word(struct cfg_t *section, struct cfg_opt_t *);
int config_shape_check(struct cfg_t *, struct cfg_opt_t *);
char *config_shape_read(struct cfg_t *);
/* A text of a class's `match`, as match_parse reads it: "all" wants a value there, and settings are
 * written with _. CONFIG_CLASS_OR stands between two choices. */
#define CONFIG_CLASS_OR "or"
struct buf;
void config_class_line(struct buf *, const char *word);

/* Sections `class`: libconfuse's check of one as it ends; all of them; and their end. */
struct cfg_t;
struct cfg_opt_t;
int config_class_check(struct cfg_t *, struct cfg_opt_t *);
void config_classes_read(struct config *, struct cfg_t *);
void config_classes_free(struct config *);
void config_classes_mix(const struct config *, void (*mix)(uint64_t *, const char *), uint64_t *h);

void config_node_clear(struct config_node *);

#endif
