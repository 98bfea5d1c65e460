// Sets the theme before the first paint; main.js changes it.
document.documentElement.dataset.theme = localStorage.getItem("mailrace.theme") || "auto";
