/* glob - matches without recursion. Only the last * is ever gone back to: the one before it has
 * matched all it needs. */
#include "redis-module/commands/glob.h"

/* Whether c is in the set at p (behind the '['); *p is set behind its ']'. */
static bool in_set(const char **p, const char *end, char c)
{
    const char *s = *p;
    bool negated = s < end && *s == '^', found = false;
    if (negated)
        s++;
    while (s < end && *s != ']') {
        char low, high;
        if (*s == '\\' && s + 1 < end)
            s++;
        low = high = *s++;
        if (end - s >= 2 && s[0] == '-' && s[1] != ']') {
            high = s[1];
            s += 2;
        }
        if (low > high) {
            char swap = low;
            low = high;
            high = swap;
        }
        found |= (unsigned char)c >= (unsigned char)low && (unsigned char)c <= (unsigned char)high;
    }
    *p = s < end ? s + 1 : end;
    return found != negated;
}

bool glob_match(const char *p, size_t pattern_len, const char *t, size_t text_len)
{
    const char *p_end = p + pattern_len, *t_end = t + text_len, *star = NULL, *star_text = NULL;
    while (t < t_end) {
        if (p < p_end && *p == '*') {
            star = ++p;
            star_text = t;
            continue;
        }
        if (p < p_end) {
            const char *next = p + 1;
            bool fits;
            if (*p == '?') {
                fits = true;
            } else if (*p == '[') {
                fits = in_set(&next, p_end, *t);
            } else {
                if (*p == '\\' && next < p_end)
                    p = next++;
                fits = *p == *t;
            }
            if (fits) {
                p = next;
                t++;
                continue;
            }
        }
        if (!star)
            return false;
        p = star;
        t = ++star_text;
    }
    while (p < p_end && *p == '*')
        p++;
    return p == p_end;
}
