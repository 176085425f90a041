// The page for the browser, its style sheet and script, from page.html, page.css and page.js.
#ifndef DENSEFORMER_SERVE_PAGE_ASSETS_H_
#define DENSEFORMER_SERVE_PAGE_ASSETS_H_

#include <string_view>

namespace denseformer {

extern const std::string_view kPageHtml;
extern const std::string_view kPageStyle;
extern const std::string_view kPageScript;

}  // namespace denseformer

#endif  // DENSEFORMER_SERVE_PAGE_ASSETS_H_
