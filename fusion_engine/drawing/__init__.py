"""Pictures of networks: HTML pages that open offline, SVG, and Graphviz DOT.

`fusion_engine.drawing.files` holds the public functions `draw` and `draw_diff`; the other modules
are the way there: `shading` (what was fused), `details` (what a layer holds, as text), `picture`
(boxes and their sizes), `layout` (where they go, by Graphviz), and `svg`, `dot`, `page` (the files).
"""
